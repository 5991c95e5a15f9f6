-- What every verb shares. What happens here must agree, step by step, with `Line` in line/line.rs; generated histories
-- are run on both. All of it runs in one statement, which is one transaction, and begins by locking the line's row. No verb
-- waits for that row: others of the same session would wait behind it (relational/busy.rs).
--
-- Answers are text: standings, separated by `;`, then for each bell to be rung in the caller's own process a line of its
-- own. Bells for other processes are notifications or letters. (Where a value is assigned instead of selected, it is for speed: that
-- needs no plan.) A name in a bell is written in hex, because it may contain anything.

CREATE OR REPLACE FUNCTION "lockline".clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- Called by every verb, if one of the settings it looks at is not as it has to be: behind a pooler they are not ours. Refuses
-- what a lock cannot be trusted to. With an older snapshot a verb would decide by what was before it got the row.
CREATE OR REPLACE FUNCTION "lockline".begin_verb() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'lockline needs the isolation level read committed'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    -- A grant or a renewal that a crash takes back gives two holders; so does one that a synchronous standby does not have on
    -- its disk when it takes over.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- A plan that was made while a table was small would read all of it later.
    PERFORM set_config('enable_seqscan', 'off', true);
    -- The line's row is not waited for at all; any other that somebody has locked only for a moment.
    PERFORM set_config('lock_timeout', '20ms', true);
END $$;

-- Makes the claims that `lines` keeps rows like all others: somebody came beside them, or they are to be changed. Whoever calls
-- it has locked the lines' rows.
CREATE OR REPLACE FUNCTION "lockline".stand_in_claims(p_lines uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO "lockline".claims (line, ticket, id, kind, permits, permit_limit, lease_us, deadline_us, since_us,
            owner, host, pid, identity, process, listens)
        SELECT line, last_ticket, alone, kind, permits, permit_limit, lease_us, next_lapse_us, seen_us,
            owner, host, pid, identity, process, listens
        FROM "lockline".lines WHERE line = ANY (p_lines) AND alone IS NOT NULL;
    UPDATE "lockline".lines SET in_through = last_ticket, entered_us = seen_us, alone = NULL
        WHERE line = ANY (p_lines) AND alone IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION "lockline".bell(p_name text, p_ticket bigint, p_id uuid, p_news text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT p_ticket || ' ' || p_id || ' ' || p_news || ' ' || encode(convert_to(p_name, 'UTF8'), 'hex')
$$;

-- Rings a bell: in the caller's own process by its answer, in another by a notification, or by a letter if it hears none.
CREATE OR REPLACE FUNCTION "lockline".ring(
    p_me uuid, p_process uuid, p_listens boolean, p_name text, p_ticket bigint, p_id uuid, p_lease bigint, p_news text
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF p_process = p_me THEN
        RETURN E'\n' || "lockline".bell(p_name, p_ticket, p_id, p_news);
    END IF;
    IF p_listens THEN
        PERFORM pg_notify('lockline_' || p_process, "lockline".bell(p_name, p_ticket, p_id, p_news));
    ELSE
        INSERT INTO "lockline".letters AS old (process, id, ticket, news, name, until_us)
            VALUES (p_process, p_id, p_ticket, p_news, p_name, "lockline".clock_us() + p_lease)
            ON CONFLICT (process, id) DO UPDATE
                SET ticket = excluded.ticket, news = excluded.news, until_us = excluded.until_us;
    END IF;
    RETURN '';
END $$;

-- Lets in whoever the front has room for and rings them, except the caller, who is told by its answer. Reads little
-- further than the first that must wait.
CREATE OR REPLACE FUNCTION "lockline".settle(
    p_line uuid, p_name text, p_through bigint, p_caller uuid, p_me uuid,
    OUT through bigint, OUT bells text, OUT is_empty boolean
) LANGUAGE plpgsql AS $$
DECLARE
    hold record;
    place bigint := 0;
    front smallint;
    used bigint := 0;
    smallest bigint;
BEGIN
    through := p_through;
    bells := '';
    is_empty := true;
    FOR hold IN
        SELECT ticket, id, kind, permits, permit_limit, lease_us, process, listens
        FROM "lockline".claims WHERE line = p_line ORDER BY ticket, id
    LOOP
        is_empty := false;
        -- Several holds of one identity stand on one place, and are admitted once.
        IF hold.ticket <> place THEN
            IF place = 0 THEN
                EXIT WHEN hold.kind = 2 AND hold.permits > hold.permit_limit;
                front := hold.kind;
                smallest := hold.permit_limit;
            ELSE
                EXIT WHEN front = 0 OR hold.kind <> front;
                smallest := least(smallest, hold.permit_limit);
                EXIT WHEN front = 2 AND used + hold.permits > smallest;
            END IF;
            used := used + hold.permits;
            place := hold.ticket;
        END IF;
        IF hold.ticket > p_through THEN
            through := hold.ticket;
            IF hold.id IS DISTINCT FROM p_caller THEN
                bells := bells || "lockline".ring(
                    p_me, hold.process, hold.listens, p_name, hold.ticket, hold.id, hold.lease_us, 'in');
            END IF;
        END IF;
    END LOOP;
END $$;

-- A clock that stepped back pulls every deadline with it, so that a step costs at most one lease; then all lapsed claims go,
-- from anywhere in the line.
CREATE OR REPLACE FUNCTION "lockline".drop_lapsed(p_line uuid, p_now bigint, p_seen bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_now < p_seen THEN
        UPDATE "lockline".claims SET deadline_us = least(deadline_us, p_now + lease_us) WHERE line = p_line;
    END IF;
    DELETE FROM "lockline".claims WHERE line = p_line AND deadline_us <= p_now;
END $$;

-- Settles a line, and writes down everything that is known about it then.
CREATE OR REPLACE FUNCTION "lockline".settle_line(p_line uuid, p_now bigint, p_caller uuid, p_me uuid)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l record;
    settled record;
    lapse bigint;
BEGIN
    SELECT name, in_through INTO l FROM "lockline".lines WHERE line = p_line;
    settled := "lockline".settle(p_line, l.name, l.in_through, p_caller, p_me);
    SELECT min(deadline_us) INTO lapse FROM "lockline".claims WHERE line = p_line;
    UPDATE "lockline".lines
        SET in_through = settled.through, seen_us = p_now,
            entered_us = CASE WHEN settled.through > l.in_through THEN p_now ELSE entered_us END, next_lapse_us = coalesce(lapse, p_now),
            free = settled.is_empty
        WHERE line = p_line;
    RETURN settled.bells;
END $$;

-- Brings a line to the present. Whoever calls it has locked the line's row.
CREATE OR REPLACE FUNCTION "lockline".catch_up(p_line uuid, p_now bigint, p_seen bigint, p_caller uuid, p_me uuid)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM "lockline".drop_lapsed(p_line, p_now, p_seen);
    RETURN "lockline".settle_line(p_line, p_now, p_caller, p_me);
END $$;

-- Where a claim stands: `L` lapsed, `O` out, `I ticket`, or `W ticket ahead lease next-lapse`. The last is -1 if there is none,
-- or none so soon that the claim would look again because of it: then nobody has to search for it.
CREATE OR REPLACE FUNCTION "lockline".waiting(
    p_line uuid, p_ticket bigint, p_ahead bigint, p_lease bigint, p_now bigint, p_next_lapse bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    lapse bigint;
BEGIN
    IF p_next_lapse - p_now < least(1000000, p_lease / 3) THEN
        SELECT min(place) INTO lapse FROM (
            SELECT max(deadline_us) AS place FROM "lockline".claims
            WHERE line = p_line AND ticket < p_ticket GROUP BY ticket
        ) places;
    END IF;
    RETURN 'W ' || p_ticket || ' ' || p_ahead || ' ' || p_lease || ' ' || coalesce(lapse - p_now, -1);
END $$;

CREATE OR REPLACE FUNCTION "lockline".standing(p_line uuid, p_id uuid, p_through bigint, p_now bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    SELECT ticket, lease_us, closed INTO c FROM "lockline".claims WHERE line = p_line AND id = p_id;
    IF NOT FOUND THEN
        RETURN 'L';
    ELSIF c.closed THEN
        RETURN 'O';
    ELSIF c.ticket <= p_through THEN
        RETURN 'I ' || c.ticket;
    END IF;
    RETURN "lockline".waiting(
        p_line, c.ticket,
        (SELECT count(DISTINCT ticket) FROM "lockline".claims WHERE line = p_line AND ticket < c.ticket),
        c.lease_us, p_now, p_now);
END $$;
