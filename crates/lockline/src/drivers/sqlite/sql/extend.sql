UPDATE claims SET lease_us = ?4, deadline_us = ?5, renewed_us = ?6, fixed = ?7 WHERE name = ?1 AND ticket = ?2 AND id = ?3
