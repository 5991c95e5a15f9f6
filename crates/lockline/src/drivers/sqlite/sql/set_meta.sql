UPDATE meta SET last_ticket = ?1, earliest_us = ?2, latest_us = ?3
