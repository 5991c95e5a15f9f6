-- Extends places, and tells where each stands, in the order asked. Never makes a place. Ticket 0: its client knows none.
CREATE OR REPLACE FUNCTION "lockline".renew(
    p_lines uuid[], p_ids uuid[], p_tickets bigint[], p_leases bigint[], p_last boolean[], p_me uuid
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    bells text := "lockline".tick(p_lines, p_me);
    answers text[];
    l record;
    n integer;
BEGIN
    FOR n IN 1 .. cardinality(p_lines) LOOP
        SELECT in_through, seen_us INTO l FROM "lockline".lines WHERE line = p_lines[n];
        IF NOT FOUND THEN
            answers[n] := 'L';
            CONTINUE;
        END IF;
        -- With the ticket it is found at once, and a place of the same id with another ticket is not extended.
        UPDATE "lockline".claims SET
                lease_us = p_leases[n],
                deadline_us = CASE WHEN p_last[n] AND ticket <= l.in_through THEN l.seen_us + p_leases[n]
                              ELSE greatest(deadline_us, l.seen_us + p_leases[n]) END,
                fixed = p_last[n] AND ticket <= l.in_through
            WHERE line = p_lines[n] AND id = p_ids[n] AND NOT closed AND NOT fixed
                AND (ticket = p_tickets[n] OR p_tickets[n] = 0);
        IF p_last[n] THEN
            -- A fixed lease may end sooner than the one it replaces.
            UPDATE "lockline".lines SET next_lapse_us = least(next_lapse_us, l.seen_us + p_leases[n])
                WHERE line = p_lines[n];
        END IF;
        answers[n] := "lockline".standing(p_lines[n], p_ids[n], l.in_through, l.seen_us);
    END LOOP;
    RETURN array_to_string(answers, ';') || bells;
END $$;

-- Locks lines, always in one order, so that nobody waits in a circle, and brings them to the present.
CREATE OR REPLACE FUNCTION "lockline".tick(p_lines uuid[], p_me uuid)
RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    now_us bigint;
    bells text := '';
    one record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') = 'off' THEN
        PERFORM "lockline".begin_verb();
    END IF;
    PERFORM line FROM "lockline".lines WHERE line = ANY (p_lines) ORDER BY line FOR UPDATE;
    now_us := "lockline".clock_us();
    FOR one IN
        SELECT line, seen_us FROM "lockline".lines
        WHERE line = ANY (p_lines) AND (now_us < seen_us OR now_us >= next_lapse_us)
    LOOP
        bells := bells || "lockline".catch_up(one.line, now_us, one.seen_us, NULL, p_me);
    END LOOP;
    UPDATE "lockline".lines SET seen_us = now_us WHERE line = ANY (p_lines);
    RETURN bells;
END $$;
