-- The columns of a table: name, letters, digits of a second, type, and the index that makes it unique by itself, or `-`.
SELECT concat_ws(' ', encode(convert_to(a.attname::text, 'UTF8'), 'hex'),
                 CASE WHEN t.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 ELSE -1 END,
                 CASE WHEN t.typname NOT IN ('timestamp', 'timestamptz') THEN -1
                      WHEN a.atttypmod < 0 THEN 6 ELSE a.atttypmod END,
                 t.typname,
                 COALESCE((SELECT encode(convert_to(i.indexrelid::regclass::text, 'UTF8'), 'hex') FROM pg_index i
                           WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
                             AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum LIMIT 1), '-'))
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
