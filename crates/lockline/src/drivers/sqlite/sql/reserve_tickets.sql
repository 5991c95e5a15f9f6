-- Above the wall clock (?1), and by as much (?2) above the last ticket if that is ahead of it.
UPDATE meta SET ticket_reserve = max(?1, last_ticket + ?2) WHERE ticket_reserve < max(?1, last_ticket + ?2)
