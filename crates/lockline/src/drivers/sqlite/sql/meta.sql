SELECT last_ticket, earliest_us FROM meta
