CREATE TABLE IF NOT EXISTS lockline_fences (
    resource text   NOT NULL PRIMARY KEY,
    token    bigint NOT NULL
)
