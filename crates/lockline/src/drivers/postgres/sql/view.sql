SELECT l.line, l.name, c.ticket <= l.in_through AS is_in, "lockline".clock_us() AS now_us, c.ticket, c.kind, c.permits,
       c.permit_limit, c.deadline_us, c.since_us, c.closed, c.owner, c.host, c.pid
FROM "lockline".claims c JOIN "lockline".lines l USING (line)
WHERE c.line = ANY ($1)
ORDER BY l.line, c.ticket, c.since_us, c.id
