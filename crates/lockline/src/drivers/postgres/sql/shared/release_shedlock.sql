-- ShedLock's rows stay: a client that has seen one only updates it. One with its own clock compares milliseconds: with more digits the lock
-- would be taken for one that ends a moment later, and a task that comes right now be skipped. It gives a row unless somebody's transaction sits on the lock's.
WITH released AS (
    UPDATE {table} t SET {until} = date_trunc('milliseconds', {clock})
    WHERE t.{key} = $1::text AND left(t.{owner}, {mark}) = $2::text AND NOT {is_free} RETURNING 1
)
SELECT count(*)::text FROM released
