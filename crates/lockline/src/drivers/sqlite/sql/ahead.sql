SELECT count(*) FROM (SELECT 1 FROM claims WHERE name = ?1 AND ticket < ?2 GROUP BY ticket)
