-- ShedLock's rows stay: a client that has seen one only updates it, and would never get a lock whose row was deleted.
UPDATE {table} SET {until} = {now} WHERE {key} = ? AND LEFT({owner}, {mark}) = ? AND NOT {is_free}
