SELECT name FROM claims INDEXED BY claims_by_deadline WHERE deadline_us <= ?1
