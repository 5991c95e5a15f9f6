-- Of a line whose row somebody else has locked what stands there is shown as it was last written.
SELECT l.line, l.name, c.ticket <= l.in_through AS is_in, "lockline".clock_us() AS now_us, c.ticket, c.kind, c.permits,
       c.permit_limit, c.deadline_us, c.since_us, c.closed, c.owner, c.host, c.pid, c.id,
       CASE WHEN c.ticket = l.in_through THEN greatest(l.entered_us, c.since_us) END AS entered_us
FROM "lockline".claims c JOIN "lockline".lines l USING (line)
WHERE c.line = ANY ($1)
UNION ALL
SELECT line, name, true, "lockline".clock_us(), last_ticket, kind, permits,
       permit_limit, next_lapse_us, seen_us, false, owner, host, pid, alone, seen_us
FROM "lockline".lines
WHERE line = ANY ($1) AND alone IS NOT NULL AND next_lapse_us > "lockline".clock_us()
ORDER BY 1, 5, 10, 15
