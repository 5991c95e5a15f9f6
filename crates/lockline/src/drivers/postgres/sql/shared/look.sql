-- What the rows of these keys say. It locks nothing and waits for nobody.
SELECT concat_ws(' ', array_position($1::text[], t.{key}::text) - 1, CASE WHEN {is_free} THEN 1 ELSE 0 END,
                 COALESCE((extract(epoch FROM t.{until} - {clock}) * 1000000)::bigint, 0), {since},
                 encode(convert_to(t.{owner}::text, 'UTF8'), 'hex'), encode(convert_to({last_text}, 'UTF8'), 'hex')), {durability}
FROM {table} t WHERE t.{key} = ANY ($1::text[])
