-- Where a claim stands: `L` lapsed, `O` out, `I ticket`, or `W ticket ahead lease next-lapse`. The last is -1 if there is none,
-- or none so soon that the claim would look again because of it: then nobody has to search for it.
--
-- Who asks for many claims of one line, in the order of their tickets, passes on from each to the next how many places are before which
-- ticket: a thousand who wait are then counted once, and not a thousand times. Both are 0 at first.
CREATE PROCEDURE lockline_standing(
    IN p_line BINARY(16), IN p_id BINARY(16), IN p_ticket BIGINT, IN p_through BIGINT, IN p_now BIGINT,
    INOUT io_ticket BIGINT, INOUT io_places BIGINT, OUT o_answer VARCHAR(200)
)
BEGIN
    DECLARE c_ticket, c_lease, before_places, before_lapse, l_lapse BIGINT;
    DECLARE c_closed BOOLEAN;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    -- With the ticket it is found at once.
    SELECT ticket, lease_us, closed INTO c_ticket, c_lease, c_closed
        FROM lockline_claims WHERE line = p_line AND ticket = p_ticket AND id = p_id;
    IF c_ticket IS NULL THEN
        SELECT ticket, lease_us, closed INTO c_ticket, c_lease, c_closed
            FROM lockline_claims WHERE line = p_line AND id = p_id;
    END IF;
    IF c_ticket IS NULL THEN
        SET o_answer = 'L';
    ELSEIF c_closed THEN
        SET o_answer = 'O';
    ELSEIF c_ticket <= p_through THEN
        SET o_answer = CONCAT('I ', c_ticket);
    ELSE
        IF c_ticket < io_ticket THEN
            SET io_ticket = 0, io_places = 0;
        END IF;
        SELECT COUNT(DISTINCT ticket) INTO before_places FROM lockline_claims
            WHERE line = p_line AND ticket >= io_ticket AND ticket < c_ticket;
        SET before_places = before_places + io_places, io_ticket = c_ticket, io_places = before_places;
        SELECT next_lapse_us INTO l_lapse FROM lockline_lines WHERE line = p_line;
        IF l_lapse - p_now < LEAST(1000000, c_lease DIV 3) THEN
            SELECT MIN(lapse) INTO before_lapse FROM (
                SELECT MAX(deadline_us) AS lapse FROM lockline_claims
                WHERE line = p_line AND ticket < c_ticket GROUP BY ticket
            ) places;
        END IF;
        SET o_answer = CONCAT('W ', c_ticket, ' ', before_places, ' ', c_lease, ' ', COALESCE(before_lapse - p_now, -1));
    END IF;
END
