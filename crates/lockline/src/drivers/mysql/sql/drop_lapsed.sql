-- A clock that stepped back pulls every deadline with it, so that a step costs at most one lease; then all lapsed claims go,
-- from anywhere in the line.
CREATE PROCEDURE lockline_drop_lapsed(IN p_line BINARY(16), IN p_now BIGINT, IN p_seen BIGINT)
BEGIN
    IF p_now < p_seen THEN
        UPDATE lockline_claims SET deadline_us = LEAST(deadline_us, p_now + lease_us) WHERE line = p_line;
    END IF;
    DELETE FROM lockline_claims WHERE line = p_line AND deadline_us <= p_now;
END
