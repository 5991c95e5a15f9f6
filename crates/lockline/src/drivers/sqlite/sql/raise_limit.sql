UPDATE meta SET ticket_limit = ?1 WHERE ticket_limit < ?1
