-- Removes a claim, in, waiting or unknown: nothing of it remains. A leave that a crash takes back only lengthens a lease, so
-- nobody waits for a disk.
--
-- The common case first: the only claim leaves, so there is nobody to look at and nobody to ring.
CREATE OR REPLACE FUNCTION "lockline".leave(p_line uuid, p_name text, p_id uuid, p_ticket bigint, p_me uuid)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l_ticket bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM "lockline".begin_verb();
    END IF;
    IF set_config('synchronous_commit', 'off', true) IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE "lockline".lines SET free = true, alone = NULL WHERE line = p_line AND alone = p_id
        RETURNING last_ticket INTO l_ticket;
    IF NOT FOUND THEN
        RETURN "lockline".leave_line(p_line, p_name, p_id, p_ticket, p_me);
    END IF;
    DELETE FROM "lockline".claims WHERE line = p_line AND ticket = l_ticket AND id = p_id;
    RETURN '';
END $$;

-- The same for any line.
CREATE OR REPLACE FUNCTION "lockline".leave_line(p_line uuid, p_name text, p_id uuid, p_ticket bigint, p_me uuid)
RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    l_through bigint;
    l_seen bigint;
    l_lapse bigint;
    now_us bigint;
    bells text := '';
    gone boolean;
    was_closed boolean;
    settled record;
BEGIN
    SELECT in_through, seen_us, next_lapse_us INTO l_through, l_seen, l_lapse
        FROM "lockline".lines WHERE line = p_line FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '';
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
        settled := "lockline".settle(p_line, p_name, l_through, NULL, p_me);
        UPDATE "lockline".lines
            SET in_through = settled.through, seen_us = now_us, free = settled.is_empty, alone = NULL
            WHERE line = p_line;
        bells := bells || settled.bells;
    ELSE
        UPDATE "lockline".lines SET seen_us = now_us WHERE line = p_line AND NOT free;
    END IF;
    RETURN bells;
END $$;
