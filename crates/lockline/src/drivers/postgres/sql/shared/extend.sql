-- Those that somebody's transaction sits on are left out: the others must not wait for it.
WITH asked AS (
    SELECT k, mark, lease_us, nth
    FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (k, mark, lease_us, nth)
), reached AS (
    SELECT asked.nth FROM {table} t JOIN asked ON t.{key} = asked.k
    WHERE left(t.{owner}, {mark}) = asked.mark AND NOT {is_free}
    FOR UPDATE OF t SKIP LOCKED
)
UPDATE {table} t SET {until} = {clock} + asked.lease_us * interval '1 microsecond'
FROM asked JOIN reached USING (nth)
WHERE t.{key} = asked.k AND left(t.{owner}, {mark}) = asked.mark AND NOT {is_free}
RETURNING (asked.nth - 1)::text, {durability}
