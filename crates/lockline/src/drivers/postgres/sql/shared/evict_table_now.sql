WITH evicted AS (
    DELETE FROM {table} t
    WHERE t.{key} = $1::text AND t.{owner} = $2::text AND {last_text} = $3::text AND NOT {is_free} RETURNING 1
)
SELECT count(*)::text FROM evicted
