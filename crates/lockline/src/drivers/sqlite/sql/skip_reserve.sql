-- Tickets up to the reserve may have been given by commits that were lost.
UPDATE meta SET last_ticket = max(last_ticket, ticket_reserve)
