-- One who is in alone leaves, and another claim of the same client stands in line for itself, in this order: one statement for what
-- lockline_leave and lockline_join do in two calls with a dozen. It changes nothing where it is not so simple: then they are for that.
--
-- The client says who it thinks is next, and which ticket was given last; both are claims of its own that wait. The next one is
-- next if nobody got a ticket between it and the one who leaves. The row of whoever leaves becomes that of whoever comes.
--
-- The moment is the same everywhere in a statement, and no value depends on another that is assigned: here their order is not said.
-- If the row had to be waited for, the moment is behind it, and it is not so simple. The named lock of whoever leaves is nobody's bell,
-- because the next one is ours; that of whoever comes is the bell of whoever comes behind it. Answers the ticket and how many
-- places are before it, in one number, and whether the server's settings keep less than they should.
UPDATE lockline_lines l
    STRAIGHT_JOIN lockline_claims gone FORCE INDEX (PRIMARY) ON gone.line = l.line AND gone.ticket = l.in_through AND gone.id = ?
    STRAIGHT_JOIN lockline_claims next FORCE INDEX (PRIMARY) ON next.line = l.line AND next.ticket = ? AND next.id = ?
SET l.last_ticket = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)),
    l.seen_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)),
    l.day = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)) DIV 86400000000,
    l.in_through = next.ticket,
    l.entered_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)),
    l.next_lapse_us = LEAST(l.next_lapse_us, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)) + ?),
    l.last_process = ?,
    gone.ticket = LAST_INSERT_ID(
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)) * 1024 + {weak} * 512 + LEAST(GREATEST(l.places, 1) - 1, 511)) DIV 1024,
    gone.id = ?,
    gone.before_ticket = ?,
    gone.lease_us = ?,
    gone.deadline_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)) + ?,
    gone.since_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)),
    gone.pid = ?,
    gone.process = ?,
    gone.owner = ?,
    gone.host = ?,
    gone.fixed = COALESCE(GET_LOCK(CONCAT('lockline:', LEFT(HEX(?), 16), ':',
            TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6))), 0), 0)
        + COALESCE(RELEASE_LOCK(CONCAT('lockline:', LEFT(HEX(?), 16), ':', ?)), 0) < 0
WHERE l.line = {line} AND l.alone = x'00000000000000000000000000000000' AND l.in_through = ? AND l.last_ticket = ?
    AND l.last_ticket < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6))
    AND l.seen_us <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6))
    AND l.next_lapse_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6)) + LEAST(1000000, ? DIV 3)
    AND gone.kind = 0 AND gone.identity IS NULL AND NOT gone.closed
    AND next.kind = 0 AND next.identity IS NULL AND next.before_ticket = l.in_through
    AND NOT @@global.read_only
