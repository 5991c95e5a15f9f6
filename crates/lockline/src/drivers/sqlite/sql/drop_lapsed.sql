DELETE FROM claims WHERE deadline_us <= ?1 OR renewed_us > ?2
