UPDATE claims SET is_in = 1 WHERE name = ?1 AND ticket = ?2
