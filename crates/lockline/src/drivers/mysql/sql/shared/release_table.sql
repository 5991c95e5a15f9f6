DELETE FROM {table} WHERE {key} = ? AND LEFT({owner}, {mark}) = ?
