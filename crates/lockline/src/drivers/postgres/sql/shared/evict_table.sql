-- The mark is gone until the lease ends, so that its owner can neither extend nor release it, and nobody overlaps with it.
WITH evicted AS (
    UPDATE {table} t SET {owner} = 'evicted', {last} = left(concat('evicted ', t.{owner}, ' ', t.{last}), {room})
    WHERE t.{key} = $1::text AND t.{owner} = $2::text AND {last_text} = $3::text AND NOT {is_free} RETURNING 1
)
SELECT count(*)::text FROM evicted
