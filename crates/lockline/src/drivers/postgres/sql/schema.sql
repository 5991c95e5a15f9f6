-- Lockline's tables on PostgreSQL. Times are microseconds since 1970 on the server's clock.
CREATE SCHEMA IF NOT EXISTS "lockline";

CREATE TABLE "lockline".meta (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);
INSERT INTO "lockline".meta (version) VALUES (3);

-- One row per name: whoever locks it may change the line. It outlives the line as its ticket counter, for a day or two,
-- so that tokens rise even if the clock is set back. Columns that change with every verb have no index (they are
-- rewritten in place), and the page keeps room for that.
--
-- A claim that nobody stands beside is kept here, and not in `claims`: to take a free lock and to give it back is then one
-- changed row each. It is in, its ticket is the last, it stands since `seen_us`, and its deadline is `next_lapse_us`.
CREATE TABLE "lockline".lines (
    line          uuid   PRIMARY KEY,       -- half of the name's SHA-256
    name          text   NOT NULL,
    last_ticket   bigint NOT NULL,
    in_through    bigint NOT NULL,          -- places up to this ticket are in
    seen_us       bigint NOT NULL,          -- when a verb last saw it with anybody in it
    next_lapse_us bigint NOT NULL,          -- no claim lapses before this
    free          boolean NOT NULL,         -- nobody stands in it
    day           integer NOT NULL,         -- when it was last joined, in days
    alone         uuid,                     -- the claim that is kept here, if there is one; the rest is as in `claims`
    kind          smallint,
    listens       boolean,
    permits       bigint,
    permit_limit  bigint,
    lease_us      bigint,
    pid           bigint,
    process       uuid,
    owner         text,
    host          text,
    identity      text,
    entered_us    bigint                    -- when the place of `in_through` got in
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lines_by_day ON "lockline".lines (day);

-- A hold is a row; the rows of one line in ticket order are its line.
CREATE TABLE "lockline".claims (
    line         uuid     NOT NULL,
    ticket       bigint   NOT NULL,
    id           uuid     NOT NULL,         -- who knows it can leave the place
    kind         smallint NOT NULL,         -- 0 exclusive, 1 shared, 2 permits
    closed       boolean  NOT NULL DEFAULT false, -- evicted while in: stands until its deadline, answers `out`
    fixed        boolean  NOT NULL DEFAULT false, -- the deadline was set for good
    listens      boolean  NOT NULL,         -- its process hears notifications
    permits      bigint   NOT NULL,         -- permits taken, and how many there are; 0 for other kinds
    permit_limit bigint   NOT NULL,
    lease_us     bigint   NOT NULL,
    deadline_us  bigint   NOT NULL,
    since_us     bigint   NOT NULL,
    pid          bigint   NOT NULL,
    process      uuid     NOT NULL,         -- the claiming client, and its channel
    owner        text     NOT NULL,
    host         text     NOT NULL,
    identity     text,                      -- an owner identity that several processes share
    PRIMARY KEY (line, ticket, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The claims that `lines` keeps, for whoever looks for claims here by hand.
CREATE VIEW "lockline".lone_claims AS
    SELECT line, last_ticket AS ticket, alone AS id, kind, listens, permits, permit_limit, lease_us,
           next_lapse_us AS deadline_us, seen_us AS since_us, pid, process, owner, host, identity
    FROM "lockline".lines WHERE alone IS NOT NULL;

-- What a claim of a client that hears no notifications is to be told: its client looks here. That it is in, until it was read;
-- that it was evicted, until its client has left. One for a client that is gone goes some time after its lease.
CREATE TABLE "lockline".letters (
    process  uuid   NOT NULL,               -- whom it is for
    id       uuid   NOT NULL,
    ticket   bigint NOT NULL,
    news     text   NOT NULL,               -- `in` or `out`
    name     text   NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (process, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
