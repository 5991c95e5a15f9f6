-- Extends places, and tells where each stands, in the order asked. Never makes a place. Ticket 0: its client knows none. `U` for a
-- place whose line's row somebody else has locked: one that stays locked must not keep the others from being extended.
CREATE OR REPLACE FUNCTION "lockline".renew(
    p_lines uuid[], p_ids uuid[], p_tickets bigint[], p_leases bigint[], p_last boolean[], p_me uuid
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    locked uuid[] := "lockline".lock_lines(p_lines);
    bells text := "lockline".tick(locked, p_me);
    some_are_not boolean := cardinality(locked) < cardinality(p_lines);
    answers text[];
    n integer;
    l record;
    c record;
    tickets_of uuid;
    tickets bigint[];
BEGIN
    FOR n IN 1 .. cardinality(p_lines) LOOP
        SELECT in_through, seen_us, next_lapse_us INTO l FROM "lockline".lines WHERE line = p_lines[n];
        IF some_are_not AND FOUND AND p_lines[n] <> ALL (locked) THEN
            answers[n] := 'U';
            CONTINUE;
        END IF;
        SELECT ticket, lease_us, closed, fixed INTO c FROM "lockline".claims
            WHERE line = p_lines[n] AND ticket = p_tickets[n] AND id = p_ids[n];
        IF NOT FOUND THEN
            SELECT ticket, lease_us, closed, fixed INTO c FROM "lockline".claims
                WHERE line = p_lines[n] AND id = p_ids[n];
        END IF;
        IF c.ticket IS NULL THEN
            -- One that an eviction dropped is not forgotten: who takes one for the other stands in line again.
            answers[n] := CASE WHEN EXISTS (
                SELECT FROM "lockline".letters
                WHERE process = p_me AND id = p_ids[n] AND news = 'out' AND p_tickets[n] IN (0, ticket)
            ) THEN 'O' ELSE 'L' END;
            CONTINUE;
        END IF;
        -- A place of the same id with another ticket is not extended, but named.
        IF p_tickets[n] IN (0, c.ticket) AND NOT c.closed AND NOT c.fixed THEN
            c.lease_us := p_leases[n];
            IF p_last[n] AND c.ticket <= l.in_through THEN
                UPDATE "lockline".claims
                    SET lease_us = p_leases[n], deadline_us = l.seen_us + p_leases[n], fixed = true
                    WHERE line = p_lines[n] AND ticket = c.ticket AND id = p_ids[n];
                -- A fixed lease may end sooner than the one it replaces.
                UPDATE "lockline".lines SET next_lapse_us = least(next_lapse_us, l.seen_us + p_leases[n])
                    WHERE line = p_lines[n];
            ELSE
                UPDATE "lockline".claims
                    SET lease_us = p_leases[n], deadline_us = greatest(deadline_us, l.seen_us + p_leases[n])
                    WHERE line = p_lines[n] AND ticket = c.ticket AND id = p_ids[n];
            END IF;
        END IF;
        IF c.closed THEN
            answers[n] := 'O';
        ELSIF c.ticket <= l.in_through THEN
            answers[n] := 'I ' || c.ticket;
        ELSE
            -- Of a thousand that wait in one line each would count all before it: they are counted once.
            IF tickets_of IS DISTINCT FROM p_lines[n] THEN
                tickets_of := p_lines[n];
                tickets := ARRAY(SELECT DISTINCT ticket FROM "lockline".claims WHERE line = tickets_of ORDER BY ticket);
            END IF;
            answers[n] := "lockline".waiting(p_lines[n], c.ticket, width_bucket(c.ticket - 1, tickets), c.lease_us,
                l.seen_us, l.next_lapse_us);
        END IF;
    END LOOP;
    RETURN array_to_string(answers, ';') || bells;
END $$;

-- Locks those of the lines that nobody else has locked: a caller that waited would hold the others meanwhile.
CREATE OR REPLACE FUNCTION "lockline".lock_lines(p_lines uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') <> 'on'
            OR current_setting('enable_seqscan') = 'on' THEN
        PERFORM "lockline".begin_verb();
    END IF;
    RETURN ARRAY(
        SELECT line FROM "lockline".lines WHERE line = ANY (p_lines) ORDER BY line FOR UPDATE SKIP LOCKED);
END $$;

-- Locks the row of a line, for which it waits a moment if it must. Whether it has got it.
CREATE OR REPLACE FUNCTION "lockline".wait_for(p_line uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- Longer than a verb of another client has it, and so short that nobody notices who is behind this in the same session.
    PERFORM set_config('lock_timeout', '20ms', true);
    PERFORM line FROM "lockline".lines WHERE line = p_line FOR UPDATE;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- Brings lines to the present that the caller has locked.
CREATE OR REPLACE FUNCTION "lockline".tick(p_lines uuid[], p_me uuid)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
    bells text := '';
    one record;
BEGIN
    PERFORM "lockline".stand_in_claims(p_lines);
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
