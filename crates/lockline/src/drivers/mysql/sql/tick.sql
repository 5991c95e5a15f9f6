-- Brings one line to the present, inside the caller's transaction; answers whether there is one, and the moment.
CREATE PROCEDURE lockline_tick_line(
    IN p_line BINARY(16), IN p_me BINARY(16), IN p_now BIGINT, OUT o_through BIGINT, INOUT io_bells LONGTEXT
)
BEGIN
    DECLARE l_last, l_seen, l_lapse BIGINT;
    DECLARE l_alone BINARY(16);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT last_ticket, in_through, seen_us, next_lapse_us, alone INTO l_last, o_through, l_seen, l_lapse, l_alone
        FROM lockline_lines WHERE line = p_line;
    IF l_alone <> x'00000000000000000000000000000000' THEN
        CALL lockline_stand_in_claims(p_line);
        SET o_through = l_last;
    END IF;
    IF p_now < l_seen OR p_now >= l_lapse THEN
        CALL lockline_drop_lapsed(p_line, p_now, l_seen);
        CALL lockline_settle_line(p_line, p_now, NULL, p_me, io_bells);
        SELECT in_through INTO o_through FROM lockline_lines WHERE line = p_line;
    ELSEIF l_lapse - p_now < 1000000 THEN
        -- A bound from before renewals: found anew once, it spares everybody who waits the search (lockline_standing).
        SELECT COALESCE(MIN(deadline_us), l_lapse) INTO l_lapse FROM lockline_claims WHERE line = p_line;
        UPDATE lockline_lines SET seen_us = p_now, next_lapse_us = l_lapse WHERE line = p_line;
    ELSE
        UPDATE lockline_lines SET seen_us = p_now WHERE line = p_line;
    END IF;
END
