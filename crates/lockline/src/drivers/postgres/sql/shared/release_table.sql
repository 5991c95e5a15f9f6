-- It gives a row unless somebody's transaction sits on the lock's.
WITH released AS (
    DELETE FROM {table} t WHERE t.{key} = $1::text AND left(t.{owner}, {mark}) = $2::text RETURNING 1
)
SELECT count(*)::text FROM released
