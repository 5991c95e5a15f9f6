SELECT last_ticket FROM meta
