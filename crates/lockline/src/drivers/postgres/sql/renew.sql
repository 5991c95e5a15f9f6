-- Extends places, and tells where each stands, in the order asked. Never makes a place. Ticket 0: its client knows none.
CREATE OR REPLACE FUNCTION "lockline".renew(
    p_lines uuid[], p_ids uuid[], p_tickets bigint[], p_leases bigint[], p_last boolean[], p_me uuid
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    bells text := "lockline".tick(p_lines, p_me);
    answers text[];
    n integer;
    l record;
    c record;
    tickets_of uuid;
    tickets bigint[];
BEGIN
    FOR n IN 1 .. cardinality(p_lines) LOOP
        SELECT in_through, seen_us, next_lapse_us INTO l FROM "lockline".lines WHERE line = p_lines[n];
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

-- Locks lines, always in one order, so that nobody waits in a circle, and brings them to the present.
CREATE OR REPLACE FUNCTION "lockline".tick(p_lines uuid[], p_me uuid)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
    bells text := '';
    one record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') = 'off'
            OR current_setting('enable_seqscan') = 'on' THEN
        PERFORM "lockline".begin_verb();
    END IF;
    PERFORM line FROM "lockline".lines WHERE line = ANY (p_lines) ORDER BY line FOR UPDATE;
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
