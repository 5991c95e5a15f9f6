-- The same for any line, inside the transaction of lockline_leave.
CREATE PROCEDURE lockline_leave_line(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_id BINARY(16), IN p_ticket BIGINT, IN p_me BINARY(16)
)
BEGIN
    DECLARE l_through, l_seen, l_lapse, now_us, c_ticket, through BIGINT;
    DECLARE is_empty BOOLEAN;
    DECLARE bells LONGTEXT DEFAULT '';
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT in_through, seen_us, next_lapse_us INTO l_through, l_seen, l_lapse
        FROM lockline_lines WHERE line = p_line FOR UPDATE;
    IF l_through IS NOT NULL THEN
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
        IF now_us < l_seen OR now_us >= l_lapse THEN
            -- Whoever leaves is not told that it could have got in.
            CALL lockline_drop_lapsed(p_line, now_us, l_seen);
            CALL lockline_settle_line(p_line, now_us, p_id, p_me, bells);
            SELECT in_through INTO l_through FROM lockline_lines WHERE line = p_line;
        END IF;
        DELETE FROM lockline_claims WHERE line = p_line AND ticket = p_ticket AND id = p_id AND NOT closed;
        IF ROW_COUNT() = 1 THEN
            SET c_ticket = p_ticket;
        ELSE
            -- Its client never learnt a ticket, or an old one; or it was evicted, and knows of it now.
            DELETE FROM lockline_letters WHERE process = p_me AND id = p_id;
            SELECT ticket INTO c_ticket FROM lockline_claims WHERE line = p_line AND id = p_id;
            DELETE FROM lockline_claims WHERE line = p_line AND ticket = c_ticket AND id = p_id;
        END IF;
        IF c_ticket IS NULL THEN
            UPDATE lockline_lines SET seen_us = now_us WHERE line = p_line AND NOT free;
        ELSE
            CALL lockline_settle(p_line, p_name, l_through, NULL, p_me, through, is_empty, bells);
            UPDATE lockline_lines SET in_through = through, seen_us = now_us, free = is_empty, alone = NULL
                WHERE line = p_line;
        END IF;
    END IF;
    COMMIT;
    DO RELEASE_LOCK(CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', COALESCE(c_ticket, p_ticket)));
    SELECT bells AS answer;
END
