-- Shows the place with this ticket out, if it is still there: `1`, or `0` if it was not.
CREATE PROCEDURE lockline_evict(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_ticket BIGINT, IN p_at_once BOOLEAN, IN p_me BINARY(16)
)
BEGIN
    DECLARE l_last, l_through, l_seen, now_us BIGINT;
    DECLARE l_alone BINARY(16);
    DECLARE found_ INT DEFAULT 0;
    DECLARE bells LONGTEXT DEFAULT '';
    DECLARE outs LONGTEXT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    START TRANSACTION;
    SELECT last_ticket, in_through, seen_us, alone INTO l_last, l_through, l_seen, l_alone
        FROM lockline_lines WHERE line = p_line FOR UPDATE /*!80000 NOWAIT */;
    IF l_through IS NOT NULL THEN
        IF l_alone <> x'00000000000000000000000000000000' THEN
            CALL lockline_stand_in_claims(p_line);
            SET l_through = l_last;
        END IF;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
        CALL lockline_drop_lapsed(p_line, now_us, l_seen);
        SELECT COUNT(*), GROUP_CONCAT(IF(process = p_me,
                CONCAT('\n', ticket, ' ', LOWER(HEX(id)), ' out ', HEX(p_name)), '') SEPARATOR '')
            INTO found_, outs FROM lockline_claims WHERE line = p_line AND ticket = p_ticket;
        DELETE FROM lockline_letters WHERE until_us <= now_us;
        INSERT INTO lockline_letters (process, id, ticket, name, until_us)
            SELECT process, id, ticket, p_name, now_us + lease_us FROM lockline_claims
                WHERE line = p_line AND ticket = p_ticket AND process <> p_me
            ON DUPLICATE KEY UPDATE ticket = VALUES(ticket), until_us = VALUES(until_us);
        IF p_ticket <= l_through AND NOT p_at_once THEN
            -- Its holder may still be at work: its place stands until its lease ends.
            UPDATE lockline_claims SET closed = TRUE WHERE line = p_line AND ticket = p_ticket;
        ELSE
            DELETE FROM lockline_claims WHERE line = p_line AND ticket = p_ticket;
        END IF;
        SET bells = COALESCE(outs, '');
        CALL lockline_settle_line(p_line, now_us, NULL, p_me, bells);
    END IF;
    COMMIT;
    SELECT CONCAT(found_ > 0, bells) AS answer;
END
