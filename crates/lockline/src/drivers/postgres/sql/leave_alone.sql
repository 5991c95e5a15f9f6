-- Removes the claim that stands alone in its line: there is nobody to look at and nobody to ring. Changes nothing if it does not,
-- or if the row is locked, which is not waited for;
-- then it is for "lockline".leave. A leave that a crash takes back only lengthens a lease, so nobody waits for a disk.
UPDATE "lockline".lines SET free = true, alone = NULL
WHERE line = (SELECT line FROM "lockline".lines WHERE line = $1 AND alone = $2 FOR UPDATE SKIP LOCKED) AND alone = $2
    AND set_config('synchronous_commit', 'off', true) IS NOT NULL
