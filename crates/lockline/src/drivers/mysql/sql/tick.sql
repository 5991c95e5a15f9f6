-- Brings one line to the present, inside the caller's transaction; answers whether there is one, and the moment.
CREATE PROCEDURE lockline_tick_line(
    IN p_line BINARY(16), IN p_me BINARY(16), IN p_now BIGINT, OUT o_through BIGINT, INOUT io_bells LONGTEXT
)
BEGIN
    DECLARE l_seen, l_lapse BIGINT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT in_through, seen_us, next_lapse_us INTO o_through, l_seen, l_lapse FROM lockline_lines WHERE line = p_line;
    IF p_now < l_seen OR p_now >= l_lapse THEN
        CALL lockline_drop_lapsed(p_line, p_now, l_seen);
        CALL lockline_settle_line(p_line, p_now, NULL, p_me, io_bells);
        SELECT in_through INTO o_through FROM lockline_lines WHERE line = p_line;
    ELSE
        UPDATE lockline_lines SET seen_us = p_now WHERE line = p_line;
    END IF;
END
