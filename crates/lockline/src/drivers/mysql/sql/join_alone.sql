-- Takes a lock that nobody stands at: one changed row, and no look at anybody else. Changes nothing if somebody does, or if the row is locked; then it is for
-- lockline_join, which says the same in its own words. That one is also for a server that must not be written to.
--
-- The time may be read before the row is locked; if that took a while, the lease is that much shorter than it could be, which harms
-- nobody. The named lock is the bell of whoever comes behind it. Assignments see those before them.
-- Answers the ticket, doubled, and whether the server's settings keep less than they should.
UPDATE lockline_lines SET
    seen_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)), last_ticket = LAST_INSERT_ID(
        GREATEST(last_ticket + 1, seen_us) * 2 + {weak}) DIV 2,
    free = COALESCE(GET_LOCK(CONCAT('lockline:', LEFT(HEX(line), 16), ':', last_ticket), 0), 0) < 0,
    lease_us = ?, next_lapse_us = seen_us + lease_us, day = seen_us DIV 86400000000, alone = ?, kind = ?, permits = ?,
    permit_limit = ?, pid = ?, process = ?, owner = ?, host = ?, identity = ?
WHERE line = {line} AND free AND NOT @@global.read_only
