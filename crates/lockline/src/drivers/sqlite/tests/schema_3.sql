-- A hold is a row; the rows of one name in ticket order are its line.
--
-- The key is the order of the line, so a verb reads the front of a line and stops. Times are microseconds on the boot
-- clock. No boot is named beside them: a container may have a boot id of its own over the same kernel and clock.
CREATE TABLE claims (
    name          TEXT    NOT NULL,
    ticket        INTEGER NOT NULL,
    id            BLOB    NOT NULL,           -- 16 bytes: who knows them can leave the place
    kind          INTEGER NOT NULL,           -- 0 exclusive, 1 shared, 2 permits
    permits       INTEGER NOT NULL,           -- permits taken, and how many there are; 0 for other kinds
    permit_limit  INTEGER NOT NULL,
    is_in         INTEGER NOT NULL,           -- once 1, 1 until the row is gone
    closed        INTEGER NOT NULL,           -- evicted while in: stands until its deadline, answers `out`
    fixed         INTEGER NOT NULL,           -- the deadline was set for good
    lease_us      INTEGER NOT NULL,
    deadline_us   INTEGER NOT NULL,
    renewed_us    INTEGER NOT NULL,           -- last joined or renewed; ahead of the clock: of another boot
    since_us      INTEGER NOT NULL,
    owner         TEXT    NOT NULL,
    host          TEXT    NOT NULL,
    pid           INTEGER NOT NULL,           -- as the claim says, for people
    identity      TEXT,                       -- an owner identity that several processes share
    process       BLOB    NOT NULL,           -- 16 bytes: the claiming process, and the address of its bell
    process_pid   INTEGER NOT NULL,           -- what its life is judged by: pid, start time, pid namespace
    process_start INTEGER NOT NULL,
    process_ns    INTEGER NOT NULL,
    PRIMARY KEY (name, ticket, id)
) WITHOUT ROWID;

-- Without the holder of a mutex, who is the first of the line anyhow: a lock that is free is taken and given back without
-- touching an index.
CREATE INDEX claims_by_id ON claims (id) WHERE is_in = 0 OR kind <> 0;
CREATE INDEX claims_by_identity ON claims (name, identity) WHERE identity IS NOT NULL;

-- One row. The ticket counter is one for all names, so that a name nobody wants leaves nothing behind.
CREATE TABLE meta (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    last_ticket    INTEGER NOT NULL,
    earliest_us    INTEGER NOT NULL,          -- no claim lapses before this; in place of an index that each renewal would move
    latest_us      INTEGER NOT NULL,          -- no claim was renewed after this: ahead of the clock, the file is of another boot
    ticket_limit   INTEGER NOT NULL,          -- only tickets below it are given: so much of the reserve is on the disk for certain
    ticket_reserve INTEGER NOT NULL           -- where tickets go on after a boot: above all that were ever given
);

-- The last boot ids the file was used under. Others mean that commits may have been lost with the power; never that a
-- claim has ended.
CREATE TABLE boots (number INTEGER PRIMARY KEY, id TEXT NOT NULL);

-- Where free pages for the day the disk is full come from: filled, written back, emptied again.
CREATE TABLE reserve (filler BLOB);
