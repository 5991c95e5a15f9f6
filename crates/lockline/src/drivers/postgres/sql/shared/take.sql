-- It gives a row if, and only if, the lock is this claim's now.
INSERT INTO {table} AS t ({key}, {owner}, {until}, {last})
VALUES ($1::text, $2::text, {clock} + $3::bigint * interval '1 microsecond', {last_value})
ON CONFLICT ({key}) DO UPDATE
    SET {owner} = EXCLUDED.{owner}, {until} = EXCLUDED.{until}, {last} = EXCLUDED.{last}
    WHERE {is_free} OR t.{owner} = EXCLUDED.{owner}
RETURNING 'taken', {durability}
