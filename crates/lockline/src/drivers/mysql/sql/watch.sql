-- Waits until the first waiting claim of this process may be in, or the time is over; then rings for every claim of this process
-- that is in: its client knows which of them it was not told of. Answers `N` if none of ours waits, `M` if the one that it waits for
-- is ours, too (then our own leave will tell), `S` if there is nobody's session to wait for, `R` otherwise.
--
-- It waits for the named lock of the claim before it, which ends when that one leaves or its session ends. A reader waits for whom
-- the readers before it wait for: they get in together. Permits may be set free by any of their holders: it looks now and then.
CREATE PROCEDURE lockline_watch(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_me BINARY(16), IN p_seconds INT
)
watch: BEGIN
    DECLARE l_through, mine, before_ticket BIGINT;
    DECLARE my_kind SMALLINT;
    DECLARE looks INT DEFAULT 0;
    DECLARE before_process BINARY(16);
    DECLARE bell VARCHAR(64);
    DECLARE bells LONGTEXT;
    DECLARE was_free INT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT in_through INTO l_through FROM lockline_lines WHERE line = p_line;
    SELECT ticket, kind INTO mine, my_kind FROM lockline_claims
        WHERE line = p_line AND process = p_me AND ticket > l_through ORDER BY ticket LIMIT 1;
    IF mine IS NULL THEN
        -- It may have got in before anybody looked.
        SELECT CONCAT('N', COALESCE(GROUP_CONCAT(
                CONCAT('\n', ticket, ' ', LOWER(HEX(id)), ' in ', HEX(p_name)) SEPARATOR ''), '')) AS answer
            FROM lockline_claims WHERE line = p_line AND process = p_me AND NOT closed AND ticket <= l_through;
        LEAVE watch;
    END IF;
    SELECT ticket, process INTO before_ticket, before_process FROM lockline_claims
        WHERE line = p_line AND ticket < mine AND (my_kind <> 1 OR kind <> 1 OR ticket <= l_through)
        ORDER BY ticket DESC LIMIT 1;
    IF before_process = p_me AND my_kind <> 2 THEN
        SELECT 'M' AS answer;
        LEAVE watch;
    END IF;
    SET bell = CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', before_ticket);
    SET was_free = my_kind <> 2 AND COALESCE(IS_FREE_LOCK(bell), 1);
    IF my_kind = 2 THEN
        WHILE l_through < mine AND looks < 20 * p_seconds DO
            DO SLEEP(0.05);
            SET looks = looks + 1;
            SELECT in_through INTO l_through FROM lockline_lines WHERE line = p_line;
        END WHILE;
    ELSEIF NOT was_free AND GET_LOCK(bell, p_seconds) = 1 THEN
        DO RELEASE_LOCK(bell);
    END IF;
    SELECT in_through INTO l_through FROM lockline_lines WHERE line = p_line;
    SELECT GROUP_CONCAT(CONCAT('\n', ticket, ' ', LOWER(HEX(id)), ' in ', HEX(p_name)) SEPARATOR '') INTO bells
        FROM lockline_claims
        WHERE line = p_line AND process = p_me AND NOT closed AND ticket <= l_through;
    SELECT CONCAT(IF(was_free AND l_through < mine, 'S', 'R'), COALESCE(bells, '')) AS answer;
END
