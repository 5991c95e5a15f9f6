SELECT ticket, kind, permits, permit_limit, is_in FROM claims
WHERE name = ?1 AND identity = ?2 AND closed = 0 ORDER BY ticket LIMIT 1
