-- The first of the line may not be in the index; for all others it is.
SELECT ticket, is_in, closed, fixed, lease_us, deadline_us FROM claims
WHERE name = ?1 AND ticket = (SELECT min(ticket) FROM claims WHERE name = ?1) AND id = ?2
UNION ALL
SELECT ticket, is_in, closed, fixed, lease_us, deadline_us FROM claims INDEXED BY claims_by_id
WHERE id = ?2 AND name = ?1 AND (is_in = 0 OR kind <> 0)
