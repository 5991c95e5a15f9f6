-- Extends claims that stand alone in their lines: one statement for all of them, however many. The places come as JSON, sorted by line,
-- so that nobody waits in a circle: [line in hex, id in hex, ticket, lease]. Answers the lines and ids that were extended; the others are for
-- lockline_renew: those beside whom somebody came, whose lease is another, that have lapsed, or whose line's clock stepped back.
--
-- A claim that stands alone stands since seen_us, so that does not move. A step back is noticed all the same: its deadline is then
-- further away than its lease is long.
CREATE PROCEDURE lockline_renew_alone(IN p_places LONGTEXT)
BEGIN
    DECLARE now_us, found_ BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    IF @@global.read_only THEN
        -- As in lockline_join.
        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
    END IF;
    START TRANSACTION;
    -- On MySQL an update would wait for a row that somebody else has locked. What is in the comment is for MySQL alone, which would lock
    -- the list, too.
    SELECT COUNT(l.line) INTO found_ FROM JSON_TABLE(p_places, '$[*]' COLUMNS (line CHAR(32) PATH '$[0]')) p
        STRAIGHT_JOIN lockline_lines l ON l.line = UNHEX(p.line) FOR UPDATE /*!80000 OF l NOWAIT */;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)), @lockline_renewed = '';
    UPDATE JSON_TABLE(p_places, '$[*]' COLUMNS (
            line CHAR(32) PATH '$[0]', id CHAR(32) PATH '$[1]', ticket BIGINT PATH '$[2]', lease BIGINT PATH '$[3]'
        )) p
        STRAIGHT_JOIN lockline_lines l ON l.line = UNHEX(p.line)
        SET l.next_lapse_us = now_us + l.lease_us
                + 0 * CHAR_LENGTH(@lockline_renewed := CONCAT(@lockline_renewed, p.line, p.id, ' '))
        WHERE l.alone = UNHEX(p.id) AND l.last_ticket = p.ticket AND l.lease_us = p.lease AND l.seen_us <= now_us
            AND l.next_lapse_us > now_us AND l.next_lapse_us <= now_us + l.lease_us;
    COMMIT;
    SELECT @lockline_renewed AS answer, {weak} AS weak;
END
