-- By ?2 above the wall clock (?1), or above the last ticket if that is ahead of it; unless half of that is there already, because
-- another process was first.
UPDATE meta SET ticket_reserve = max(?1, last_ticket) + ?2 WHERE ticket_reserve < max(?1, last_ticket) + ?2 / 2
