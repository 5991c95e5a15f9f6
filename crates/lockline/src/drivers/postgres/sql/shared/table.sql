-- One row per lock, shared with other programs: address option layout=table. With a time zone, no session's setting matters.
CREATE TABLE IF NOT EXISTS tbl_distribute_lock (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rkey varchar(255) NOT NULL UNIQUE,
    expiredAt timestamptz NOT NULL,
    owner varchar(64) NOT NULL,
    reentrant varchar(1024) NOT NULL DEFAULT ''
);
