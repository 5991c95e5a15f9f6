SELECT GROUP_CONCAT(CONCAT('\n', ticket, ' ', LOWER(HEX(id)), ' out ', HEX(name)) SEPARATOR '') AS answer
FROM lockline_letters WHERE process = ?
