SELECT ticket, is_in, closed, fixed, lease_us, deadline_us FROM claims INDEXED BY claims_by_id
WHERE id = ?2 AND name = ?1
