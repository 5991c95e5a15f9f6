-- The columns of its unique indexes: index, column, and how many letters of it count, 0 for all.
SELECT CONCAT_WS(' ', HEX(INDEX_NAME), COALESCE(HEX(COLUMN_NAME), '-'), COALESCE(SUB_PART, 0))
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND NON_UNIQUE = 0
