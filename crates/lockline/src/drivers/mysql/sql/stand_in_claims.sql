-- Makes a claim that lockline_lines keeps a row like all others: somebody came beside it, or it is to be changed. Whoever calls it
-- has locked the line's row. If the claim has its row already nothing is wrong: on a server whose disk had been full that was found,
-- and joins tried to make it for ever.
--
-- Its renewals are not seen in seen_us. So a clock that stepped back since the last one is noticed here: then the deadline is further
-- away than the lease is long.
CREATE PROCEDURE lockline_stand_in_claims(IN p_line BINARY(16))
BEGIN
    UPDATE lockline_lines
        SET next_lapse_us = LEAST(next_lapse_us, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) + lease_us)
        WHERE line = p_line AND alone <> x'00000000000000000000000000000000';
    INSERT INTO lockline_claims (line, ticket, id, kind, permits, permit_limit, lease_us, deadline_us, since_us, pid,
            process, owner, host, identity)
        SELECT line, last_ticket, alone, kind, permits, permit_limit, lease_us, next_lapse_us, seen_us, pid,
            process, owner, host, identity
        FROM lockline_lines WHERE line = p_line AND alone <> x'00000000000000000000000000000000'
        ON DUPLICATE KEY UPDATE closed = lockline_claims.closed;
    UPDATE lockline_lines SET in_through = last_ticket, entered_us = seen_us, places = 1, last_process = process, alone = x'00000000000000000000000000000000'
        WHERE line = p_line AND alone <> x'00000000000000000000000000000000';
END
