-- Removes a claim, in, waiting or unknown: nothing of it remains. A leave that a crash takes back only lengthens a lease, so
-- nobody waits for a disk. Answers `B` if somebody else has locked the row, and nothing was done.
CREATE OR REPLACE FUNCTION "lockline".leave(p_line uuid, p_name text, p_id uuid, p_ticket bigint, p_me uuid)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l_last bigint;
    l_through bigint;
    l_seen bigint;
    l_lapse bigint;
    l_alone uuid;
    now_us bigint;
    bells text := '';
    gone boolean;
    was_closed boolean;
    next_ record;
    settled record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('enable_seqscan') = 'on' THEN
        PERFORM "lockline".begin_verb();
    END IF;
    -- Compared, because that needs no plan.
    IF set_config('synchronous_commit', 'off', true) IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT last_ticket, in_through, seen_us, next_lapse_us, alone INTO l_last, l_through, l_seen, l_lapse, l_alone
        FROM "lockline".lines WHERE line = p_line FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM "lockline".lines WHERE line = p_line) THEN 'B' ELSE '' END;
    END IF;
    IF l_alone = p_id THEN
        -- As in leave_alone.sql.
        UPDATE "lockline".lines SET free = true, alone = NULL WHERE line = p_line;
        RETURN '';
    END IF;
    IF l_alone IS NOT NULL THEN
        PERFORM "lockline".stand_in_claims(ARRAY[p_line]);
        l_through := l_last;
    END IF;
    now_us := "lockline".clock_us();
    IF now_us < l_seen OR now_us >= l_lapse THEN
        -- Whoever leaves is not told that it could have got in.
        bells := "lockline".catch_up(p_line, now_us, l_seen, p_id, p_me);
        SELECT in_through INTO l_through FROM "lockline".lines WHERE line = p_line;
    END IF;
    DELETE FROM "lockline".claims WHERE line = p_line AND ticket = p_ticket AND id = p_id RETURNING closed INTO was_closed;
    gone := FOUND;
    IF NOT gone THEN
        -- Its client never learnt a ticket, or an old one.
        DELETE FROM "lockline".claims WHERE line = p_line AND id = p_id RETURNING closed INTO was_closed;
        gone := FOUND;
    END IF;
    IF was_closed IS NOT FALSE THEN
        -- Whoever leaves after an eviction knows of it.
        DELETE FROM "lockline".letters WHERE process = p_me AND id = p_id;
    END IF;
    IF gone THEN
        SELECT ticket, id, kind, process, listens, lease_us, identity INTO next_
            FROM "lockline".claims WHERE line = p_line ORDER BY ticket LIMIT 1;
        IF next_.kind = 0 AND next_.identity IS NULL THEN
            -- As `settle` would do it, in half of the time.
            UPDATE "lockline".lines SET in_through = greatest(l_through, next_.ticket), seen_us = now_us, free = false,
                    entered_us = CASE WHEN next_.ticket > l_through THEN now_us ELSE entered_us END
                WHERE line = p_line;
            IF next_.ticket <= l_through THEN
                RETURN bells;
            ELSIF next_.process = p_me THEN
                RETURN bells || E'\n' || next_.ticket || ' ' || next_.id || ' in ' || encode(convert_to(p_name, 'UTF8'), 'hex');
            END IF;
            RETURN bells || "lockline".ring(
                p_me, next_.process, next_.listens, p_name, next_.ticket, next_.id, next_.lease_us, 'in');
        END IF;
        settled := "lockline".settle(p_line, p_name, l_through, NULL, p_me);
        UPDATE "lockline".lines
            SET in_through = settled.through, seen_us = now_us, free = settled.is_empty,
                entered_us = CASE WHEN settled.through > l_through THEN now_us ELSE entered_us END
            WHERE line = p_line;
        bells := bells || settled.bells;
    ELSE
        UPDATE "lockline".lines SET seen_us = now_us WHERE line = p_line AND NOT free;
    END IF;
    RETURN bells;
END $$;
