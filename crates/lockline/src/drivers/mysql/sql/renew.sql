-- Extends places, and tells where each stands, in the order asked. Never makes a place. The places come as one text of
-- fixed-width fields: line and id in hex, ticket (0: its client knows none), lease, whether it is the final renewal. Without
-- places to extend (a lease of 0) it only looks. `U` for a place whose line's row somebody else has locked: one that stays locked
-- must not keep the others from being extended.
CREATE PROCEDURE lockline_renew(IN p_places LONGTEXT, IN p_me BINARY(16))
BEGIN
    DECLARE n, places INT DEFAULT 0;
    DECLARE one VARCHAR(103);
    DECLARE r_line, r_id, at_line BINARY(16);
    DECLARE r_ticket, r_lease, l_through, counted_ticket, counted_places, now_us BIGINT;
    DECLARE r_last, is_skipped BOOLEAN;
    DECLARE skipped LONGTEXT DEFAULT '';
    DECLARE bells LONGTEXT DEFAULT '';
    DECLARE answers LONGTEXT DEFAULT '';
    DECLARE answer VARCHAR(200);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    IF @@global.read_only THEN
        -- As in lockline_join.
        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
    END IF;
    SET places = CHAR_LENGTH(p_places) DIV 103;
    START TRANSACTION;
    -- The driver sends them once more in front, sorted by line, so that nobody waits in a circle: see verbs.rs.
    WHILE n < places DO
        SET one = SUBSTRING(p_places, n * 103 + 1, 103);
        SET n = n + 1;
        SET r_line = UNHEX(SUBSTRING(one, 1, 32)), r_lease = SUBSTRING(one, 84, 19);
        IF r_lease = 0 THEN
            BEGIN
                -- Not SKIP LOCKED: with a timeout of 0 MariaDB then fails at the commit.
                DECLARE CONTINUE HANDLER FOR 1205 BEGIN
                    IF @@global.innodb_rollback_on_timeout THEN
                        -- The rows that were locked before this one are locked no longer.
                        RESIGNAL;
                    END IF;
                    SET skipped = CONCAT(skipped, SUBSTRING(one, 1, 32), ' ');
                END;
                -- MySQL's number, after which all else stays locked.
                DECLARE CONTINUE HANDLER FOR 3572 SET skipped = CONCAT(skipped, SUBSTRING(one, 1, 32), ' ');
                SELECT in_through INTO l_through FROM lockline_lines WHERE line = r_line FOR UPDATE /*!80000 NOWAIT */;
            END;
        ELSE
            IF now_us IS NULL THEN
                SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
            END IF;
            SET r_id = UNHEX(SUBSTRING(one, 33, 32)), r_ticket = SUBSTRING(one, 65, 19), r_last = SUBSTRING(one, 103, 1);
            SET is_skipped = skipped <> '' AND LOCATE(SUBSTRING(one, 1, 32), skipped) > 0;
            IF NOT (r_line <=> at_line) AND NOT is_skipped THEN
                SET at_line = r_line, l_through = NULL, counted_ticket = 0, counted_places = 0;
                CALL lockline_tick_line(r_line, p_me, now_us, l_through, bells);
            END IF;
            SET answer = IF(is_skipped, 'U', 'L');
            IF l_through IS NOT NULL AND NOT is_skipped THEN
                UPDATE lockline_claims SET
                        lease_us = r_lease,
                        deadline_us = IF(r_last AND ticket <= l_through, now_us + r_lease,
                                         GREATEST(deadline_us, now_us + r_lease)),
                        fixed = r_last AND ticket <= l_through
                    WHERE line = r_line AND ticket = r_ticket AND id = r_id AND NOT closed AND NOT fixed;
                IF r_ticket = 0 THEN
                    UPDATE lockline_claims SET
                            lease_us = r_lease,
                            deadline_us = IF(r_last AND ticket <= l_through, now_us + r_lease,
                                             GREATEST(deadline_us, now_us + r_lease)),
                            fixed = r_last AND ticket <= l_through
                        WHERE line = r_line AND id = r_id AND NOT closed AND NOT fixed;
                END IF;
                IF r_last THEN
                    -- A fixed lease may end sooner than the one it replaces.
                    UPDATE lockline_lines SET next_lapse_us = LEAST(next_lapse_us, now_us + r_lease) WHERE line = r_line;
                END IF;
                CALL lockline_standing(r_line, r_id, r_ticket, l_through, now_us, counted_ticket, counted_places, answer);
            END IF;
            IF answer = 'L' THEN
                -- Not forgotten, but dropped by an eviction: who takes one for the other stands in line again.
                SELECT 'O' INTO answer FROM lockline_letters
                    WHERE process = p_me AND id = r_id AND r_ticket IN (0, ticket);
            END IF;
            SET answers = CONCAT(answers, IF(answers = '', '', ';'), answer);
        END IF;
    END WHILE;
    IF now_us IS NULL THEN
        -- Nothing to extend: a look.
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)), n = 0;
        WHILE n < places DO
            SET one = SUBSTRING(p_places, n * 103 + 1, 103);
            IF LOCATE(SUBSTRING(one, 1, 32), skipped) = 0 THEN
                CALL lockline_tick_line(UNHEX(SUBSTRING(one, 1, 32)), p_me, now_us, l_through, bells);
            END IF;
            SET n = n + 1;
        END WHILE;
    END IF;
    COMMIT;
    SELECT CONCAT(answers, bells) AS answer, {weak} AS weak;
END
