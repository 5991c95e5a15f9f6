-- Removes the claim that stands alone in its line: there is nobody to look at and nobody to ring. Changes nothing if it does not; then
-- it is for lockline_leave.
UPDATE lockline_lines SET
    free = COALESCE(RELEASE_LOCK(CONCAT('lockline:', LEFT(HEX(line), 16), ':', last_ticket)), 0) >= 0, alone = x'00000000000000000000000000000000'
WHERE line = {line} AND alone = ?
