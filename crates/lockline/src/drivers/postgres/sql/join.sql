-- Stands a claim in line, or finds it there and extends it. Answers a standing, or `D` if its identity stands in the line in
-- another mode: it would wait for itself, or `B` if somebody else has locked the row, and nothing was done. `alone` behind a standing: `lines` keeps the claim, and join_alone.sql and
-- leave_alone.sql will do for this line until somebody comes.
CREATE OR REPLACE FUNCTION "lockline".join(
    p_line uuid, p_id uuid, p_kind smallint, p_permits bigint, p_limit bigint, p_lease bigint, p_owner text,
    p_host text, p_pid bigint, p_identity text, p_me uuid, p_listens boolean, p_name text, p_wait boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l_last bigint;
    l_through bigint;
    l_seen bigint;
    l_lapse bigint;
    l_alone uuid;
    l_free boolean;
    now_us bigint;
    bells text := '';
    found_ record;
    place record;
    is_in boolean;
    answer text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') <> 'on'
            OR current_setting('enable_seqscan') = 'on' THEN
        PERFORM "lockline".begin_verb();
    END IF;
    LOOP
        SELECT last_ticket, in_through, seen_us, next_lapse_us, alone, free
            INTO l_last, l_through, l_seen, l_lapse, l_alone, l_free
            FROM "lockline".lines WHERE line = p_line FOR UPDATE SKIP LOCKED;
        EXIT WHEN FOUND;
        IF EXISTS (SELECT FROM "lockline".lines WHERE line = p_line) THEN
            RETURN 'B';
        END IF;
        PERFORM "lockline".make_line(p_line, p_name);
    END LOOP;
    IF l_alone IS NOT NULL THEN
        PERFORM "lockline".stand_in_claims(ARRAY[p_line]);
        l_through := l_last;
    END IF;
    now_us := "lockline".clock_us();
    IF NOT l_free AND (now_us < l_seen OR now_us >= l_lapse) THEN
        bells := "lockline".catch_up(p_line, now_us, l_seen, p_id, p_me);
        SELECT in_through, next_lapse_us, free INTO l_through, l_lapse, l_free
            FROM "lockline".lines WHERE line = p_line;
    END IF;
    IF l_free AND p_permits <= p_limit THEN
        -- As in join_alone.sql.
        l_last := greatest(l_last + 1, now_us);
        UPDATE "lockline".lines SET
                last_ticket = l_last, seen_us = now_us, next_lapse_us = now_us + p_lease, free = false,
                day = now_us / 86400000000, alone = p_id, kind = p_kind, permits = p_permits, permit_limit = p_limit,
                lease_us = p_lease, owner = p_owner, host = p_host, pid = p_pid, identity = p_identity, process = p_me,
                listens = p_listens
            WHERE line = p_line;
        RETURN 'I ' || l_last || ' alone' || bells;
    END IF;

    SELECT count(*) AS places, max(ticket) AS last, max(kind) AS kind, sum(permits)::bigint AS used,
           min(permit_limit) AS smallest, min(deadline_us) AS lapse,
           bool_or(id = p_id) AS mine, bool_or(identity IS NOT NULL) AS shared
        INTO found_ FROM "lockline".claims WHERE line = p_line;
    IF found_.shared THEN
        SELECT count(*) AS places, max(ticket) AS last, max(p.kind) AS kind, sum(p.permits)::bigint AS used,
               min(p.permit_limit) AS smallest, min(p.lapse) AS lapse, found_.mine AS mine, true AS shared
            INTO found_ FROM (
                SELECT ticket, min(kind) AS kind, min(permits) AS permits, min(permit_limit) AS permit_limit,
                       max(deadline_us) AS lapse
                FROM "lockline".claims WHERE line = p_line GROUP BY ticket
            ) p;
    END IF;

    IF found_.mine THEN
        -- A second try after a lost reply, sent late: its client counts the new lease from that second sending.
        UPDATE "lockline".claims SET lease_us = p_lease, deadline_us = greatest(deadline_us, now_us + p_lease)
            WHERE line = p_line AND id = p_id AND NOT closed AND NOT fixed;
        UPDATE "lockline".lines SET seen_us = now_us WHERE line = p_line;
        RETURN "lockline".standing(p_line, p_id, l_through, now_us) || bells;
    END IF;

    IF found_.shared AND p_identity IS NOT NULL THEN
        SELECT ticket, kind, permits, permit_limit INTO place FROM "lockline".claims
            WHERE line = p_line AND identity = p_identity AND NOT closed LIMIT 1;
        IF FOUND THEN
            IF (place.kind, place.permits, place.permit_limit) <> (p_kind, p_permits, p_limit) THEN
                answer := 'D';
            ELSIF NOT p_wait AND place.ticket > l_through THEN
                answer := 'O';
            ELSE
                INSERT INTO "lockline".claims (line, ticket, id, kind, permits, permit_limit, lease_us, deadline_us,
                        since_us, owner, host, pid, identity, process, listens)
                    VALUES (p_line, place.ticket, p_id, p_kind, p_permits, p_limit, p_lease, now_us + p_lease,
                        now_us, p_owner, p_host, p_pid, p_identity, p_me, p_listens);
                l_lapse := least(l_lapse, now_us + p_lease);
                answer := "lockline".standing(p_line, p_id, l_through, now_us);
            END IF;
            UPDATE "lockline".lines SET seen_us = now_us, next_lapse_us = l_lapse
                WHERE line = p_line;
            RETURN answer || bells;
        END IF;
    END IF;

    -- Whoever waits does not fit, and nobody passes them.
    IF found_.places = 0 THEN
        is_in := p_permits <= p_limit;
    ELSIF found_.last > l_through OR p_kind <> found_.kind THEN
        is_in := false;
    ELSIF p_kind = 2 THEN
        is_in := found_.used + p_permits <= least(p_limit, found_.smallest);
    ELSE
        is_in := p_kind = 1;
    END IF;
    IF NOT is_in AND NOT p_wait THEN
        IF found_.places > 0 THEN
            UPDATE "lockline".lines SET seen_us = now_us WHERE line = p_line;
        END IF;
        RETURN 'O' || bells;
    END IF;

    l_last := greatest(l_last + 1, now_us);
    INSERT INTO "lockline".claims (line, ticket, id, kind, permits, permit_limit, lease_us, deadline_us, since_us,
            owner, host, pid, identity, process, listens)
        VALUES (p_line, l_last, p_id, p_kind, p_permits, p_limit, p_lease, now_us + p_lease, now_us,
            p_owner, p_host, p_pid, p_identity, p_me, p_listens);
    UPDATE "lockline".lines SET
            last_ticket = l_last, seen_us = now_us, day = now_us / 86400000000, free = false,
            in_through = CASE WHEN is_in THEN l_last ELSE l_through END,
            entered_us = CASE WHEN is_in THEN now_us ELSE entered_us END,
            next_lapse_us = CASE WHEN found_.places = 0 THEN now_us + p_lease ELSE least(l_lapse, now_us + p_lease) END
        WHERE line = p_line;
    IF is_in THEN
        RETURN 'I ' || l_last || bells;
    END IF;
    RETURN 'W ' || l_last || ' ' || found_.places || ' ' || p_lease || ' ' || coalesce(found_.lapse - now_us, -1)
        || bells;
END $$;

-- The row of a name that was not in use for days, or never. Each new one takes two away that nobody has used since the day
-- before yesterday, so that names which come and go leave nothing behind.
CREATE OR REPLACE FUNCTION "lockline".make_line(p_line uuid, p_name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := "lockline".clock_us();
    today integer := now_us / 86400000000;
BEGIN
    DELETE FROM "lockline".letters WHERE until_us <= now_us;
    INSERT INTO "lockline".lines (line, name, last_ticket, in_through, seen_us, next_lapse_us, free, day)
        VALUES (p_line, p_name, 0, 0, 0, 0, true, today) ON CONFLICT DO NOTHING;
    DELETE FROM "lockline".lines WHERE line IN (
        SELECT line FROM "lockline".lines l
        WHERE day < today - 1 AND (alone IS NULL OR next_lapse_us <= now_us)
            AND NOT EXISTS (SELECT FROM "lockline".claims c WHERE c.line = l.line)
        ORDER BY day LIMIT 2 FOR UPDATE SKIP LOCKED
    );
END $$;
