-- One row per lock, shared with other programs: address option layout=table. Times are in the time zone of the server.
CREATE TABLE IF NOT EXISTS tbl_distribute_lock (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    rkey varchar(255) NOT NULL,
    expiredAt datetime(3) NOT NULL,
    owner varchar(64) NOT NULL,
    reentrant varchar(1024) NOT NULL DEFAULT '',
    UNIQUE KEY x (rkey)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
