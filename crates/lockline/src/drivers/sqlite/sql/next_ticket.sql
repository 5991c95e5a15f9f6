UPDATE meta SET last_ticket = ?1
