-- The mark is gone until the lease ends, so that its owner can neither extend nor release it, and nobody overlaps with it.
UPDATE {table} SET {last} = LEFT(CONCAT('evicted ', {owner}, ' ', {last}), {room}), {owner} = 'evicted'
WHERE {key} = ? AND {owner} = ? AND {last_text} = ? AND NOT {is_free}
