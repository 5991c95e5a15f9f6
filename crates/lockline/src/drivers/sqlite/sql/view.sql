SELECT name, ticket, kind, permits, permit_limit, is_in, closed, deadline_us, since_us, owner, host, pid, entered_us FROM claims
WHERE name >= ?1 AND deadline_us > ?2 ORDER BY name, ticket, since_us
