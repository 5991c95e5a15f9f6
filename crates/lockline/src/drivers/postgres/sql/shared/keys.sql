SELECT encode(convert_to(t.{key}::text, 'UTF8'), 'hex') FROM {table} t WHERE NOT {is_free}
