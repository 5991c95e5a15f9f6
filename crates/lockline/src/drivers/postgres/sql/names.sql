-- The lines that somebody stands in. All of them are looked at, because any look moves a line on whose claims lapsed.
SELECT line FROM "lockline".lines WHERE NOT free
