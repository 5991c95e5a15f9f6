UPDATE claims SET is_in = 1, entered_us = ?3 WHERE name = ?1 AND ticket = ?2
