-- The columns of a table: name, letters, digits of a second, type. What the driver wants to know of the table is three plain questions:
-- MariaDB 10.11.19 crashed once, in a test, while it ran one with a correlated subquery instead. The cause was not found.
SELECT CONCAT_WS(' ', HEX(COLUMN_NAME), COALESCE(CHARACTER_MAXIMUM_LENGTH, -1), COALESCE(DATETIME_PRECISION, -1), DATA_TYPE)
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?
