-- Where a claim stands: `L` lapsed, `O` out, `I ticket`, or `W ticket ahead lease next-lapse`, the last -1 if there is none.
CREATE PROCEDURE lockline_standing(
    IN p_line BINARY(16), IN p_id BINARY(16), IN p_through BIGINT, IN p_now BIGINT, OUT o_answer VARCHAR(200)
)
BEGIN
    DECLARE c_ticket, c_lease, before_places, before_lapse BIGINT;
    DECLARE c_closed BOOLEAN;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT ticket, lease_us, closed INTO c_ticket, c_lease, c_closed
        FROM lockline_claims WHERE line = p_line AND id = p_id;
    IF c_ticket IS NULL THEN
        SET o_answer = 'L';
    ELSEIF c_closed THEN
        SET o_answer = 'O';
    ELSEIF c_ticket <= p_through THEN
        SET o_answer = CONCAT('I ', c_ticket);
    ELSE
        SELECT COUNT(*), MIN(lapse) INTO before_places, before_lapse FROM (
            SELECT MAX(deadline_us) AS lapse FROM lockline_claims
            WHERE line = p_line AND ticket < c_ticket GROUP BY ticket
        ) places;
        SET o_answer = CONCAT('W ', c_ticket, ' ', before_places, ' ', c_lease, ' ', COALESCE(before_lapse - p_now, -1));
    END IF;
END
