UPDATE claims SET closed = 1 WHERE name = ?1 AND ticket = ?2
