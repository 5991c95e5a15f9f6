-- What the rows of these keys say. It locks nothing and waits for nobody. The first field is what the server keeps at this moment.
SELECT CONCAT_WS(' ', {weak}, CASE {key} {nth} END, {is_free},
                 COALESCE(TIMESTAMPDIFF(MICROSECOND, {clock}, {until}), 0), {since},
                 HEX(CONVERT({owner} USING utf8mb4)), HEX(CONVERT({last_text} USING utf8mb4)))
FROM {table} WHERE {key} IN ({keys})
