-- A place lapses with its last hold. Only what lapses before ?3 is of interest, and that is little.
SELECT deadline_us FROM claims AS hold
WHERE name = ?1 AND ticket < ?2 AND deadline_us < ?3
  AND NOT EXISTS (SELECT 1 FROM claims AS other WHERE other.name = hold.name AND other.ticket = hold.ticket
                                                 AND other.deadline_us > hold.deadline_us)
ORDER BY deadline_us LIMIT 1
