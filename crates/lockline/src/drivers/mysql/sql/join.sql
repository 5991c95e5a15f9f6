-- Stands a claim in line, or finds it there and extends it. Answers a standing, or `D` if its identity stands in the line in
-- another mode: it would wait for itself.
--
-- The common case first: a lock that nobody stands at costs two changed rows and no look at anybody else. The time is read
-- before the row is locked; if that took a while, the lease is that much shorter than it could be, which harms nobody.
CREATE PROCEDURE lockline_join(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_id BINARY(16), IN p_kind SMALLINT, IN p_permits BIGINT,
    IN p_limit BIGINT, IN p_lease BIGINT, IN p_wait BOOLEAN, IN p_owner VARBINARY(512), IN p_host VARBINARY(512),
    IN p_pid BIGINT, IN p_identity VARBINARY(512), IN p_me BINARY(16)
)
BEGIN
    DECLARE now_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    IF @@global.read_only THEN
        -- Procedures run with the rights of whoever made them, whom the server itself may let write.
        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
    END IF;
    START TRANSACTION;
    -- In this order it does not matter whether a later assignment sees an earlier one.
    UPDATE lockline_lines SET
            in_through = GREATEST(last_ticket + 1, now_us), last_ticket = LAST_INSERT_ID(GREATEST(last_ticket + 1, now_us)),
            seen_us = now_us, next_lapse_us = now_us + p_lease, free = FALSE, alone = p_id, day = now_us DIV 86400000000
        WHERE line = p_line AND free AND p_permits <= p_limit;
    IF ROW_COUNT() = 1 THEN
        INSERT INTO lockline_claims (line, ticket, id, kind, permits, permit_limit, lease_us, deadline_us, since_us, pid,
                process, owner, host, identity)
            VALUES (p_line, LAST_INSERT_ID(), p_id, p_kind, p_permits, p_limit, p_lease, now_us + p_lease, now_us, p_pid,
                p_me, p_owner, p_host, p_identity);
        COMMIT;
        -- The bell of whoever stands behind it: it waits for this lock inside the server.
        DO GET_LOCK(CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', LAST_INSERT_ID()), 0);
        SELECT CONCAT('I ', LAST_INSERT_ID()) AS answer;
    ELSE
        CALL lockline_join_line(p_line, p_name, p_id, p_kind, p_permits, p_limit, p_lease, p_wait, p_owner, p_host, p_pid,
            p_identity, p_me);
    END IF;
END
