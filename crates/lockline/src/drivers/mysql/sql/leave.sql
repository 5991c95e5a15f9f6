-- Removes a claim, in, waiting or unknown: nothing of it remains.
--
-- The common case first: the only claim leaves, so there is nobody to look at and nobody to ring.
CREATE PROCEDURE lockline_leave(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_id BINARY(16), IN p_ticket BIGINT, IN p_me BINARY(16)
)
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    START TRANSACTION;
    -- The only claim has the last ticket.
    UPDATE lockline_lines SET free = TRUE, alone = NULL, last_ticket = LAST_INSERT_ID(last_ticket)
        WHERE line = p_line AND alone = p_id;
    IF ROW_COUNT() = 1 THEN
        DELETE FROM lockline_claims WHERE line = p_line AND ticket = LAST_INSERT_ID() AND id = p_id;
        COMMIT;
        DO RELEASE_LOCK(CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', LAST_INSERT_ID()));
        SELECT '' AS answer;
    ELSE
        CALL lockline_leave_line(p_line, p_name, p_id, p_ticket, p_me);
    END IF;
END
