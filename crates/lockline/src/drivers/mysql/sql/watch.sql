-- Waits until whoever stands before the first waiting claim of this process has left, or its session has ended, or the time is
-- over; then rings for every claim of this process that is in: its client knows which of them it was not told of. Answers `N` if
-- none of ours waits, `M` if the one before it is ours, too (then our own leave will tell), `S` if there is nobody's session to
-- wait for, `R` otherwise.
CREATE PROCEDURE lockline_watch(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_me BINARY(16), IN p_seconds INT
)
watch: BEGIN
    DECLARE l_through, mine, before_ticket BIGINT;
    DECLARE before_process BINARY(16);
    DECLARE bell VARCHAR(64);
    DECLARE bells LONGTEXT;
    DECLARE was_free INT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT in_through INTO l_through FROM lockline_lines WHERE line = p_line;
    SELECT MIN(ticket) INTO mine FROM lockline_claims WHERE line = p_line AND process = p_me AND ticket > l_through;
    IF mine IS NULL THEN
        -- It may have got in before anybody looked.
        SELECT CONCAT('N', COALESCE(GROUP_CONCAT(
                CONCAT('\n', ticket, ' ', LOWER(HEX(id)), ' in ', HEX(p_name)) SEPARATOR ''), '')) AS answer
            FROM lockline_claims WHERE line = p_line AND process = p_me AND NOT closed AND ticket <= l_through;
        LEAVE watch;
    END IF;
    SELECT ticket, process INTO before_ticket, before_process FROM lockline_claims
        WHERE line = p_line AND ticket < mine ORDER BY ticket DESC LIMIT 1;
    IF before_process = p_me THEN
        SELECT 'M' AS answer;
        LEAVE watch;
    END IF;
    SET bell = CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', before_ticket);
    SET was_free = COALESCE(IS_FREE_LOCK(bell), 1);
    IF NOT was_free AND GET_LOCK(bell, p_seconds) = 1 THEN
        DO RELEASE_LOCK(bell);
    END IF;
    SELECT in_through INTO l_through FROM lockline_lines WHERE line = p_line;
    SELECT GROUP_CONCAT(CONCAT('\n', ticket, ' ', LOWER(HEX(id)), ' in ', HEX(p_name)) SEPARATOR '') INTO bells
        FROM lockline_claims
        WHERE line = p_line AND process = p_me AND NOT closed AND ticket <= l_through;
    SELECT CONCAT(IF(was_free AND l_through < mine, 'S', 'R'), COALESCE(bells, '')) AS answer;
END
