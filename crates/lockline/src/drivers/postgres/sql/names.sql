-- The lines that somebody stands in. All of them are looked at, because any look moves a line on whose claims lapsed.
SELECT line FROM "lockline".lines l WHERE EXISTS (SELECT FROM "lockline".claims c WHERE c.line = l.line)
