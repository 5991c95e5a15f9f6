UPDATE claims SET lease_us = ?4, deadline_us = ?5, fixed = ?6 WHERE name = ?1 AND ticket = ?2 AND id = ?3
