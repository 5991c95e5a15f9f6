SELECT last_ticket, earliest_us, latest_us, ticket_limit, ticket_reserve FROM meta
