-- Takes a lock that nobody stands at: one changed row, and no look at anybody else. Changes nothing if somebody does, if the row is
-- locked, which is not waited for, or if the
-- session's settings are not as they have to be, which is only looked at in a session that is not ours (settings.sql); then it is
-- for "lockline".join, which says the same in its own words.
--
-- The clock is read anew for each column: a microsecond between them harms nobody. A lease never counts from before the row was
-- locked, nor from before the client sent this.
UPDATE "lockline".lines SET
    last_ticket = greatest(last_ticket + 1, "lockline".clock_us()), seen_us = "lockline".clock_us(),
    next_lapse_us = "lockline".clock_us() + $6, free = false, day = "lockline".clock_us() / 86400000000,
    alone = $2, kind = $3, permits = $4, permit_limit = $5, lease_us = $6, owner = $7, host = $8, pid = $9,
    identity = $10, process = $11, listens = $12
WHERE line = (SELECT line FROM "lockline".lines WHERE line = $1 AND free {settings} FOR UPDATE SKIP LOCKED) AND free
RETURNING last_ticket, {durability}
