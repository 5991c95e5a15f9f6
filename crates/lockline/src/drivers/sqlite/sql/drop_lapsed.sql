DELETE FROM claims WHERE deadline_us <= ?1
