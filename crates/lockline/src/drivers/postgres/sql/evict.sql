-- Shows the place with this ticket out, if it is still there: `1`, `0` if it was not, or `B` if somebody else has
-- locked the row, and nothing was done.
CREATE OR REPLACE FUNCTION "lockline".evict(p_line uuid, p_name text, p_ticket bigint, p_at_once boolean, p_me uuid)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l record;
    now_us bigint;
    hold record;
    answer text := '0';
    bells text := '';
BEGIN
    PERFORM "lockline".begin_verb();
    PERFORM line FROM "lockline".lines WHERE line = p_line FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM "lockline".lines WHERE line = p_line) THEN 'B' ELSE answer END;
    END IF;
    PERFORM "lockline".stand_in_claims(ARRAY[p_line]);
    SELECT in_through, seen_us INTO l FROM "lockline".lines WHERE line = p_line;
    now_us := "lockline".clock_us();
    PERFORM "lockline".drop_lapsed(p_line, now_us, l.seen_us);
    DELETE FROM "lockline".letters WHERE until_us <= now_us;
    FOR hold IN
        SELECT id, lease_us, process, listens FROM "lockline".claims WHERE line = p_line AND ticket = p_ticket
    LOOP
        answer := '1';
        bells := bells || "lockline".ring(
            p_me, hold.process, hold.listens, p_name, p_ticket, hold.id, hold.lease_us, 'out');
    END LOOP;
    IF p_ticket <= l.in_through AND NOT p_at_once THEN
        -- Its holder may still be at work: its place stands until its lease ends.
        UPDATE "lockline".claims SET closed = true WHERE line = p_line AND ticket = p_ticket;
    ELSE
        DELETE FROM "lockline".claims WHERE line = p_line AND ticket = p_ticket;
    END IF;
    RETURN answer || bells || "lockline".settle_line(p_line, now_us, NULL, p_me);
END $$;
