-- As evict_table.sql. A client without usingDbTime() asks for nobody's name when it unlocks, and frees it all the same.
UPDATE {table} SET {owner} = LEFT(CONCAT('evicted ', {owner}), {room})
WHERE {key} = ? AND {owner} = ? AND {last_text} = ? AND NOT {is_free}
