-- Of a line whose row somebody else has locked what stands there is shown as it was last written.
SELECT l.line, l.name, c.ticket <= l.in_through AS is_in, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) AS now_us,
       c.ticket, c.kind, c.permits, c.permit_limit, c.deadline_us, c.since_us, c.closed, c.owner, c.host, c.pid, c.id,
       IF(c.ticket = l.in_through, GREATEST(l.entered_us, c.since_us), NULL) AS entered_us
FROM lockline_claims c JOIN lockline_lines l ON l.line = c.line
WHERE l.line IN (?)
UNION ALL
SELECT line, name, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)), last_ticket, kind, permits, permit_limit,
       next_lapse_us, seen_us, FALSE, owner, host, pid, alone, seen_us
FROM lockline_lines
WHERE line IN (?) AND alone <> x'00000000000000000000000000000000'
    AND next_lapse_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))
ORDER BY 1, 5, 10, 15
