CREATE TABLE IF NOT EXISTS lockline_fences (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    token    BIGINT NOT NULL,
    touched  BIGINT NOT NULL
) ENGINE = InnoDB
