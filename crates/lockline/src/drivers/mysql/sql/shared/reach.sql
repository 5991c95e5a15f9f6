-- Which of these rows are there, and not locked by somebody's transaction. The locks end with the statement. By the index, whatever
-- the server thinks of it: a scan of a small table would lock the rows of others for a moment.
SELECT CONCAT(CASE {key} {nth} END) FROM {table} FORCE INDEX ({index}) WHERE {key} IN ({keys}) FOR UPDATE SKIP LOCKED
