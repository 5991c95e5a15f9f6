DELETE FROM claims WHERE name = ?1 AND ticket = ?2
