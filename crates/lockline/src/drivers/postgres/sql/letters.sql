-- What a client that hears no notifications is to be told, as bells. That a claim is in is told once; that it was evicted is
-- told until it has left, because who misses that stands in line again.
CREATE OR REPLACE FUNCTION "lockline".read_letters(p_me uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    bells text;
BEGIN
    IF current_setting('enable_seqscan') = 'on' THEN
        PERFORM "lockline".begin_verb();
    END IF;
    IF NOT EXISTS (SELECT FROM "lockline".letters WHERE process = p_me) THEN
        RETURN '';
    END IF;
    -- A letter that a crash brings back is read twice, and nobody waits for a disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH told AS (
        DELETE FROM "lockline".letters WHERE process = p_me AND news = 'in' RETURNING name, ticket, id, news
    )
    SELECT string_agg(E'\n' || "lockline".bell(name, ticket, id, news), '') INTO bells FROM (
        SELECT name, ticket, id, news FROM told
        UNION ALL SELECT name, ticket, id, news FROM "lockline".letters WHERE process = p_me AND news = 'out'
    ) letters;
    RETURN coalesce(bells, '');
END $$;
