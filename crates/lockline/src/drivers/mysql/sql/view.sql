SELECT l.line, l.name, c.ticket <= l.in_through AS is_in, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) AS now_us,
       c.ticket, c.kind, c.permits, c.permit_limit, c.deadline_us, c.since_us, c.closed, c.owner, c.host, c.pid
FROM lockline_claims c JOIN lockline_lines l ON l.line = c.line
WHERE l.line IN (?)
ORDER BY l.line, c.ticket, c.since_us, c.id
