-- Lets in whoever the front has room for, and adds a bell for each of them that is the caller's process's, except the caller,
-- who is told by its answer. Claims of other processes hear it from the named lock of whoever was before them.
CREATE PROCEDURE lockline_settle(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_through BIGINT, IN p_caller BINARY(16), IN p_me BINARY(16),
    OUT o_through BIGINT, OUT o_empty BOOLEAN, INOUT io_bells LONGTEXT
)
BEGIN
    DECLARE f_ticket, f_permits, f_limit, first_out, last_in BIGINT;
    DECLARE f_kind SMALLINT;
    DECLARE f_id, f_process BINARY(16);
    DECLARE f_shared BOOLEAN;
    DECLARE bells LONGTEXT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SET o_through = p_through;
    SELECT ticket, kind, permits, permit_limit, id, process, identity IS NOT NULL
        INTO f_ticket, f_kind, f_permits, f_limit, f_id, f_process, f_shared
        FROM lockline_claims WHERE line = p_line ORDER BY ticket LIMIT 1;
    SET o_empty = f_ticket IS NULL;
    IF f_kind = 0 THEN
        SET o_through = GREATEST(p_through, f_ticket);
    ELSEIF f_kind = 1 OR f_permits <= f_limit THEN
        -- Several holds of one identity stand on one place, and are admitted once.
        SELECT MIN(ticket) INTO first_out FROM (
            SELECT ticket, kind, SUM(permits) OVER upto AS used, MIN(permit_limit) OVER upto AS smallest FROM (
                SELECT ticket, MIN(kind) AS kind, MIN(permits) AS permits, MIN(permit_limit) AS permit_limit
                FROM lockline_claims WHERE line = p_line GROUP BY ticket
            ) places WINDOW upto AS (ORDER BY ticket ROWS UNBOUNDED PRECEDING)
        ) front WHERE kind <> f_kind OR (f_kind = 2 AND used > smallest);
        SELECT MAX(ticket) INTO last_in FROM lockline_claims
            WHERE line = p_line AND (first_out IS NULL OR ticket < first_out);
        SET o_through = GREATEST(p_through, last_in);
    END IF;
    IF o_through > p_through AND f_kind = 0 AND NOT f_shared THEN
        IF f_process = p_me AND NOT (f_id <=> p_caller) THEN
            SET io_bells = CONCAT(io_bells, '\n', f_ticket, ' ', LOWER(HEX(f_id)), ' in ', HEX(p_name));
        END IF;
    ELSEIF o_through > p_through THEN
        SELECT GROUP_CONCAT(CONCAT(ticket, ' ', LOWER(HEX(id)), ' in ', HEX(p_name)) SEPARATOR '\n') INTO bells
            FROM lockline_claims
            WHERE line = p_line AND ticket > p_through AND ticket <= o_through AND process = p_me
                AND NOT (id <=> p_caller);
        SET io_bells = CONCAT(io_bells, COALESCE(CONCAT('\n', bells), ''));
    END IF;
END
