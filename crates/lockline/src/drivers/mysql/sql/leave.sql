-- Removes a claim, in, waiting or unknown: nothing of it remains.
CREATE PROCEDURE lockline_leave(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_id BINARY(16), IN p_ticket BIGINT, IN p_me BINARY(16)
)
verb: BEGIN
    DECLARE l_last, l_through, l_seen, l_lapse, now_us, c_ticket, through BIGINT;
    DECLARE f_ticket, f_places BIGINT;
    DECLARE f_kind SMALLINT;
    DECLARE f_id, f_process, l_alone BINARY(16);
    DECLARE f_shared, is_empty BOOLEAN;
    DECLARE bells LONGTEXT DEFAULT '';
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    START TRANSACTION;
    SELECT last_ticket, in_through, seen_us, next_lapse_us, alone INTO l_last, l_through, l_seen, l_lapse, l_alone
        FROM lockline_lines WHERE line = p_line FOR UPDATE /*!80000 NOWAIT */;
    IF l_alone = p_id THEN
        -- As in leave_alone.sql.
        UPDATE lockline_lines SET free = TRUE, alone = x'00000000000000000000000000000000' WHERE line = p_line;
        COMMIT;
        SELECT LEFT(RELEASE_LOCK(CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', l_last)) <=> 1, 0) AS answer;
        LEAVE verb;
    END IF;
    IF l_through IS NOT NULL THEN
        IF l_alone <> x'00000000000000000000000000000000' THEN
            CALL lockline_stand_in_claims(p_line);
            SET l_through = l_last;
        END IF;
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
            SELECT ticket, kind, id, process, identity IS NOT NULL INTO f_ticket, f_kind, f_id, f_process, f_shared
                FROM lockline_claims WHERE line = p_line ORDER BY ticket LIMIT 1;
            IF f_kind = 0 AND NOT f_shared THEN
                -- As lockline_settle would do it; to call that takes as long as everything else here.
                SET through = GREATEST(l_through, f_ticket), is_empty = FALSE;
                IF f_ticket > l_through AND f_process = p_me THEN
                    SET bells = CONCAT(bells, '\n', f_ticket, ' ', LOWER(HEX(f_id)), ' in ', HEX(p_name));
                END IF;
            ELSEIF f_ticket IS NULL THEN
                SET through = l_through, is_empty = TRUE;
            ELSE
                CALL lockline_settle(p_line, p_name, l_through, NULL, p_me, through, is_empty, bells);
            END IF;
            IF f_ticket < c_ticket THEN
                SELECT COUNT(DISTINCT ticket) INTO f_places FROM lockline_claims WHERE line = p_line;
            END IF;
            -- Whoever stood first is gone, unless it shares its place. Any other may have been the last.
            UPDATE lockline_lines SET entered_us = IF(through > in_through, now_us, entered_us), in_through = through, seen_us = now_us,
                    free = is_empty,
                    places = COALESCE(f_places, places - IF(f_ticket <=> c_ticket, 0, 1)),
                    last_process = IF(f_ticket > c_ticket, last_process, NULL)
                WHERE line = p_line;
        END IF;
    END IF;
    COMMIT;
    SELECT CONCAT(bells, LEFT(RELEASE_LOCK(
        CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', COALESCE(c_ticket, p_ticket))) <=> 1, 0)) AS answer;
END
