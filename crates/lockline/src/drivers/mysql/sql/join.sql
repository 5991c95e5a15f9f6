-- Stands a claim in line, or finds it there and extends it. Answers a standing, or `D` if its identity stands in the line in
-- another mode: it would wait for itself. `alone` behind a standing: lockline_lines keeps the claim, and join_alone.sql and
-- leave_alone.sql will do for this line until somebody comes. A row that somebody else has locked is an error at once: whoever is behind in
-- the same session must not wait for it, too. MariaDB's sessions wait for none, and its procedures may not say NOWAIT; MySQL's wait for a
-- second at least, so what stands in comments of that version is for MySQL alone, which MariaDB skips.
CREATE PROCEDURE lockline_join(
    IN p_line BINARY(16), IN p_name VARBINARY(512), IN p_id BINARY(16), IN p_kind SMALLINT, IN p_permits BIGINT,
    IN p_limit BIGINT, IN p_lease BIGINT, IN p_wait BOOLEAN, IN p_owner VARBINARY(512), IN p_host VARBINARY(512),
    IN p_pid BIGINT, IN p_identity VARBINARY(512), IN p_me BINARY(16)
)
verb: BEGIN
    DECLARE l_last, l_through, l_seen, l_lapse, now_us BIGINT;
    DECLARE l_alone, l_before BINARY(16);
    DECLARE l_free BOOLEAN;
    DECLARE stands BOOLEAN DEFAULT FALSE;
    DECLARE f_places, f_last, f_my_last, f_used, f_smallest, f_lapse, p_ticket, p_taken, p_most BIGINT;
    DECLARE p_before, counted_ticket, counted_places BIGINT DEFAULT 0;
    DECLARE f_kind, p_mode SMALLINT;
    DECLARE f_mine, f_shared, is_in BOOLEAN;
    DECLARE bells LONGTEXT DEFAULT '';
    DECLARE answer VARCHAR(200);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    IF @@global.read_only THEN
        -- Procedures run with the rights of whoever made them, whom the server itself may let write.
        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
    END IF;
    START TRANSACTION;
    -- The usual case of a lock that many want: who wants it for himself waits behind whoever is there. One look at the row, and none at
    -- the others.
    IF p_kind = 0 AND p_wait AND p_identity IS NULL THEN
        SELECT last_ticket, seen_us, next_lapse_us, alone, places, last_process
            INTO l_last, l_seen, l_lapse, l_alone, f_places, l_before
            FROM lockline_lines WHERE line = p_line FOR UPDATE /*!80000 NOWAIT */;
        IF f_places > 0 AND l_alone = x'00000000000000000000000000000000' THEN
            SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
            IF now_us >= l_seen AND l_lapse - now_us >= LEAST(1000000, p_lease DIV 3) AND l_lapse > now_us THEN
                SET p_ticket = GREATEST(l_last + 1, now_us);
                BEGIN
                    -- A second try, whose first answer got lost.
                    DECLARE CONTINUE HANDLER FOR 1062 SET stands = TRUE;
                    INSERT INTO lockline_claims (line, ticket, before_ticket, id, kind, permits, permit_limit, lease_us,
                            deadline_us, since_us, pid, process, owner, host, identity)
                        VALUES (p_line, p_ticket, l_last, p_id, p_kind, p_permits, p_limit, p_lease, now_us + p_lease,
                            now_us, p_pid, p_me, p_owner, p_host, p_identity);
                END;
                IF NOT stands THEN
                    UPDATE lockline_lines SET last_ticket = p_ticket, seen_us = now_us, places = f_places + 1, last_process = p_me,
                            next_lapse_us = LEAST(l_lapse, now_us + p_lease), day = now_us DIV 86400000000
                        WHERE line = p_line;
                    COMMIT;
                    SELECT CONCAT('W ', p_ticket, ' ', f_places, ' ', p_lease, ' -1 ', NOT (l_before <=> p_me),
                        LEFT(GET_LOCK(CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', p_ticket), 0) <=> 1, 0)) AS answer, {weak} AS weak;
                    LEAVE verb;
                END IF;
            END IF;
        END IF;
        SET l_last = NULL, now_us = NULL, p_ticket = NULL;
    END IF;
    -- Once, unless what it finds has to be brought to the present first.
    look: LOOP
        -- One statement for the row and for everybody who stands there: each costs more than the rows that it reads.
        SELECT l.last_ticket, l.in_through, l.seen_us, l.next_lapse_us, l.alone, l.free, COUNT(c.ticket), MAX(c.ticket),
                MAX(c.kind), SUM(c.permits), MIN(c.permit_limit), MIN(c.deadline_us), MAX(c.id = p_id),
                MAX(c.identity IS NOT NULL), MAX(IF(c.process = p_me, c.ticket, 0))
            INTO l_last, l_through, l_seen, l_lapse, l_alone, l_free, f_places, f_last,
                f_kind, f_used, f_smallest, f_lapse, f_mine, f_shared, f_my_last
            FROM lockline_lines l LEFT JOIN lockline_claims c ON c.line = l.line WHERE l.line = p_line FOR UPDATE /*!80000 NOWAIT */;
        IF l_last IS NULL THEN
            -- In a transaction of its own: locking a row that is not there and inserting it in one makes deadlocks.
            ROLLBACK;
            CALL lockline_make_line(p_line, p_name);
            START TRANSACTION;
            ITERATE look;
        END IF;
        IF l_alone <> x'00000000000000000000000000000000' THEN
            CALL lockline_stand_in_claims(p_line);
            ITERATE look;
        END IF;
        IF now_us IS NULL THEN
            SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
            IF NOT l_free AND (now_us < l_seen OR now_us >= l_lapse) THEN
                CALL lockline_drop_lapsed(p_line, now_us, l_seen);
                CALL lockline_settle_line(p_line, now_us, p_id, p_me, bells);
                ITERATE look;
            END IF;
        END IF;
        LEAVE look;
    END LOOP;
    IF l_free AND p_permits <= p_limit THEN
        -- As in join_alone.sql.
        SET l_last = GREATEST(l_last + 1, now_us);
        UPDATE lockline_lines SET last_ticket = l_last, seen_us = now_us, next_lapse_us = now_us + p_lease, free = FALSE,
                day = now_us DIV 86400000000, alone = p_id, kind = p_kind, permits = p_permits, permit_limit = p_limit,
                lease_us = p_lease, pid = p_pid, process = p_me, owner = p_owner, host = p_host, identity = p_identity
            WHERE line = p_line;
        COMMIT;
        SELECT CONCAT('I ', l_last, ' alone', bells,
            LEFT(GET_LOCK(CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', l_last), 0) <=> 1, 0)) AS answer, {weak} AS weak;
        LEAVE verb;
    END IF;
    IF f_shared THEN
        SELECT COUNT(*), SUM(permits), MIN(lapse) INTO f_places, f_used, f_lapse FROM (
            SELECT MIN(permits) AS permits, MAX(deadline_us) AS lapse
            FROM lockline_claims WHERE line = p_line GROUP BY ticket
        ) places;
    END IF;

    IF f_mine THEN
        -- A second try after a lost reply, sent late: its client counts the new lease from that second sending.
        UPDATE lockline_claims SET lease_us = p_lease, deadline_us = GREATEST(deadline_us, now_us + p_lease)
            WHERE line = p_line AND id = p_id AND NOT closed AND NOT fixed;
        UPDATE lockline_lines SET seen_us = now_us WHERE line = p_line;
        CALL lockline_standing(p_line, p_id, p_ticket, l_through, now_us, counted_ticket, counted_places, answer);
        COMMIT;
        SELECT CONCAT(answer, bells) AS answer, {weak} AS weak;
        LEAVE verb;
    END IF;

    IF f_shared AND p_identity IS NOT NULL THEN
        SELECT ticket, kind, permits, permit_limit INTO p_ticket, p_mode, p_taken, p_most FROM lockline_claims
            WHERE line = p_line AND identity = p_identity AND NOT closed LIMIT 1;
    END IF;
    IF p_ticket IS NOT NULL AND (p_mode <> p_kind OR p_taken <> p_permits OR p_most <> p_limit) THEN
        SET answer = 'D';
    ELSEIF p_ticket IS NOT NULL AND NOT p_wait AND p_ticket > l_through THEN
        SET answer = 'O';
    ELSEIF p_ticket IS NULL THEN
        -- Whoever waits does not fit, and nobody passes them.
        IF f_places = 0 THEN
            SET is_in = p_permits <= p_limit;
        ELSEIF f_last > l_through OR p_kind <> f_kind THEN
            SET is_in = FALSE;
        ELSEIF p_kind = 2 THEN
            SET is_in = f_used + p_permits <= LEAST(p_limit, f_smallest);
        ELSE
            SET is_in = p_kind = 1;
        END IF;
        IF NOT is_in AND NOT p_wait THEN
            SET answer = 'O';
        END IF;
    END IF;
    IF answer IS NOT NULL THEN
        IF f_places > 0 THEN
            UPDATE lockline_lines SET seen_us = now_us WHERE line = p_line;
        END IF;
        COMMIT;
        SELECT CONCAT(answer, bells) AS answer, {weak} AS weak;
        LEAVE verb;
    END IF;

    IF is_in IS NOT NULL THEN
        SET p_before = l_last, l_last = GREATEST(l_last + 1, now_us);
        SET p_ticket = l_last;
        IF is_in THEN
            SET l_through = l_last;
        END IF;
    END IF;
    INSERT INTO lockline_claims (line, ticket, before_ticket, id, kind, permits, permit_limit, lease_us, deadline_us,
            since_us, pid, process, owner, host, identity)
        VALUES (p_line, p_ticket, p_before, p_id, p_kind, p_permits, p_limit, p_lease, now_us + p_lease, now_us, p_pid, p_me,
            p_owner, p_host, p_identity);
    UPDATE lockline_lines SET last_ticket = l_last, in_through = l_through, seen_us = now_us,
            next_lapse_us = IF(f_places = 0, now_us + p_lease, LEAST(l_lapse, now_us + p_lease)),
            free = FALSE, day = now_us DIV 86400000000, places = f_places + (is_in IS NOT NULL),
            entered_us = IF(is_in, now_us, entered_us),
            last_process = IF(is_in IS NULL, NULL, p_me)
        WHERE line = p_line;
    IF is_in THEN
        SET answer = CONCAT('I ', p_ticket);
    ELSEIF is_in IS NOT NULL THEN
        -- Whether the one before it is another client's: then it is to be watched, which costs a session.
        SET answer = CONCAT('W ', p_ticket, ' ', f_places, ' ', p_lease, ' ', COALESCE(f_lapse - now_us, -1), ' ',
            COALESCE(f_my_last < f_last, TRUE));
    ELSE
        CALL lockline_standing(p_line, p_id, p_ticket, l_through, now_us, counted_ticket, counted_places, answer);
    END IF;
    COMMIT;
    -- The named lock is the bell of whoever stands behind it, who waits for it inside the server. It is taken in the same statement
    -- because each costs as much as a row.
    SELECT CONCAT(answer, bells, LEFT(GET_LOCK(CONCAT('lockline:', LEFT(HEX(p_line), 16), ':', p_ticket), 0) <=> 1, 0))
        AS answer, {weak} AS weak;
END
