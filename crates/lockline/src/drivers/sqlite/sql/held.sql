SELECT count(*) FROM claims WHERE deadline_us > ?2 AND (SELECT boot FROM meta) = ?1
