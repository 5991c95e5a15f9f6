-- Settles a line, and writes down everything that is known about it then.
CREATE PROCEDURE lockline_settle_line(
    IN p_line BINARY(16), IN p_now BIGINT, IN p_caller BINARY(16), IN p_me BINARY(16), INOUT io_bells LONGTEXT
)
BEGIN
    DECLARE l_name VARBINARY(512);
    DECLARE l_through, through, lapse, l_places BIGINT;
    DECLARE is_empty BOOLEAN;
    SELECT name, in_through INTO l_name, l_through FROM lockline_lines WHERE line = p_line;
    CALL lockline_settle(p_line, l_name, l_through, p_caller, p_me, through, is_empty, io_bells);
    SELECT MIN(deadline_us), COUNT(DISTINCT ticket) INTO lapse, l_places FROM lockline_claims WHERE line = p_line;
    UPDATE lockline_lines SET entered_us = IF(through > in_through, p_now, entered_us), in_through = through, seen_us = p_now, next_lapse_us = COALESCE(lapse, p_now),
            free = is_empty, places = l_places, last_process = NULL
        WHERE line = p_line;
END
