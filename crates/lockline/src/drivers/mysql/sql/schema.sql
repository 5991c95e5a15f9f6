-- Lockline's tables on MariaDB and MySQL. Times are microseconds since 1970 on the server's clock. Names and labels are bytes:
-- no collation may take two of them for one.
CREATE TABLE IF NOT EXISTS lockline_meta (
    one     TINYINT NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;

-- One row per name: whoever locks it may change the line. It outlives the line as its ticket counter, for a day or two,
-- so that tokens rise even if the clock is set back.
--
-- A claim that nobody stands beside is kept here, and not among the claims: to take a free lock and to give it back is then one
-- changed row each. It is in, its ticket is the last, it stands since seen_us, and its deadline is next_lapse_us.
CREATE TABLE IF NOT EXISTS lockline_lines (
    line          BINARY(16) NOT NULL PRIMARY KEY,  -- half of the name's SHA-256
    name          VARBINARY(512) NOT NULL,
    last_ticket   BIGINT NOT NULL,
    in_through    BIGINT NOT NULL,                  -- places up to this ticket are in
    seen_us       BIGINT NOT NULL,                  -- when a verb last saw it with anybody in it
    next_lapse_us BIGINT NOT NULL,                  -- no claim lapses before this
    free          BOOLEAN NOT NULL,                 -- nobody stands in it
    places        INT NOT NULL DEFAULT 0,           -- how many there are among claims
    last_process  BINARY(16),                       -- whose the last of them is, if that is known
    day           INT NOT NULL,                     -- when it was last joined, in days
    -- The claim that is kept here, and zeros, which are nobody's id, if there is none: NULL would make the row grow with each claim,
    -- and a row that grows is written anew. The rest is as in claims.
    alone         BINARY(16) NOT NULL DEFAULT x'00000000000000000000000000000000',
    kind          SMALLINT,
    permits       BIGINT,
    permit_limit  BIGINT,
    lease_us      BIGINT,
    pid           BIGINT,
    process       BINARY(16),
    owner         VARBINARY(512),
    host          VARBINARY(512),
    identity      VARBINARY(512),
    entered_us    BIGINT,                           -- when the place of `in_through` got in
    KEY lines_by_day (day)
) ENGINE = InnoDB;

-- The claims that lockline_lines keeps, for whoever looks for claims here by hand.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW lockline_lone_claims AS
    SELECT line, last_ticket AS ticket, alone AS id, kind, permits, permit_limit, lease_us, next_lapse_us AS deadline_us,
           seen_us AS since_us, pid, process, owner, host, identity
    FROM lockline_lines WHERE alone <> x'00000000000000000000000000000000';

-- A hold is a row; the rows of one line in ticket order are its line.
CREATE TABLE IF NOT EXISTS lockline_claims (
    line         BINARY(16) NOT NULL,
    ticket       BIGINT NOT NULL,
    before_ticket BIGINT NOT NULL DEFAULT 0,        -- the ticket that was the last when it joined, or 0
    id           BINARY(16) NOT NULL,               -- who knows it can leave the place
    kind         SMALLINT NOT NULL,                 -- 0 exclusive, 1 shared, 2 permits
    closed       BOOLEAN NOT NULL DEFAULT FALSE,    -- evicted while in: stands until its deadline, answers `out`
    fixed        BOOLEAN NOT NULL DEFAULT FALSE,    -- the deadline was set for good
    permits      BIGINT NOT NULL,                   -- permits taken, and how many there are; 0 for other kinds
    permit_limit BIGINT NOT NULL,
    lease_us     BIGINT NOT NULL,
    deadline_us  BIGINT NOT NULL,
    since_us     BIGINT NOT NULL,
    pid          BIGINT NOT NULL,
    process      BINARY(16) NOT NULL,               -- the claiming client
    owner        VARBINARY(512) NOT NULL,
    host         VARBINARY(512) NOT NULL,
    identity     VARBINARY(512),                    -- an owner identity that several processes share
    PRIMARY KEY (line, ticket, id),
    UNIQUE KEY claims_by_id (line, id)
) ENGINE = InnoDB;

-- What a claim of another client is to be told: that it was evicted. Its client looks here, and removes it by leaving; one
-- that is gone leaves it to the next eviction.
CREATE TABLE IF NOT EXISTS lockline_letters (
    process  BINARY(16) NOT NULL,                   -- whom it is for
    id       BINARY(16) NOT NULL,
    ticket   BIGINT NOT NULL,
    name     VARBINARY(512) NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (process, id)
) ENGINE = InnoDB;
