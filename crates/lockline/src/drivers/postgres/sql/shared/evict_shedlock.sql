-- As evict_table.sql. A client without usingDbTime() asks for nobody's name when it unlocks, and frees it all the same.
WITH evicted AS (
    UPDATE {table} t SET {owner} = left(concat('evicted ', t.{owner}), {room})
    WHERE t.{key} = $1::text AND t.{owner} = $2::text AND {last_text} = $3::text AND NOT {is_free} RETURNING 1
)
SELECT count(*)::text FROM evicted
