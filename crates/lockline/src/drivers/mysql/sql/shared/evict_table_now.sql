DELETE FROM {table} WHERE {key} = ? AND {owner} = ? AND {last_text} = ? AND NOT {is_free}
