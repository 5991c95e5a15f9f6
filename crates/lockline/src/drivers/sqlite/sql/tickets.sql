SELECT DISTINCT ticket FROM claims WHERE name = ?1 ORDER BY ticket
