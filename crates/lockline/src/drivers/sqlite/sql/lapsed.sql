SELECT name FROM claims WHERE deadline_us <= ?1
