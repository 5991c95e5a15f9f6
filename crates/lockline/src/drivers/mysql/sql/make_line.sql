-- The row of a name that was not in use for days, or never. Each new one takes another away that nobody has used since the day
-- before yesterday, so that names which come and go leave nothing behind.
CREATE PROCEDURE lockline_make_line(IN p_line BINARY(16), IN p_name VARBINARY(512))
BEGIN
    DECLARE now_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    DECLARE today INT DEFAULT now_us DIV 86400000000;
    DECLARE idle, found_ BINARY(16);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    INSERT INTO lockline_lines (line, name, last_ticket, in_through, seen_us, next_lapse_us, free, day)
        VALUES (p_line, p_name, 0, 0, 0, 0, TRUE, today) ON DUPLICATE KEY UPDATE line = p_line;
    SELECT line INTO idle FROM lockline_lines WHERE day < today - 1 ORDER BY day LIMIT 1;
    IF idle IS NOT NULL THEN
        START TRANSACTION;
        -- If somebody sits on it, it is for the next one.
        BEGIN
            DECLARE CONTINUE HANDLER FOR 1205, 3572 BEGIN END;
            SELECT line INTO found_ FROM lockline_lines WHERE line = idle FOR UPDATE /*!80000 NOWAIT */;
        END;
        DELETE FROM lockline_lines WHERE line = found_ AND day < today - 1 AND (alone = x'00000000000000000000000000000000' OR next_lapse_us <= now_us)
            AND NOT EXISTS (SELECT 1 FROM lockline_claims WHERE line = found_);
        COMMIT;
    END IF;
END
