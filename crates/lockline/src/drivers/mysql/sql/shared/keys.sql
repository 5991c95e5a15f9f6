SELECT HEX(CONVERT({key} USING utf8mb4)) FROM {table} WHERE NOT {is_free}
