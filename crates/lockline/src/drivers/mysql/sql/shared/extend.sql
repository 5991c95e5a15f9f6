-- By the index, whatever the server thinks of it: a scan of a small table would wait for rows that somebody else sits on.
UPDATE {table} FORCE INDEX ({index}) SET {until} = {clock} + INTERVAL ? MICROSECOND
WHERE {key} IN ({keys}) AND LEFT({owner}, {mark}) IN ({keys}) AND NOT {is_free}
