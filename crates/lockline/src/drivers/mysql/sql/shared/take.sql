-- An assignment sees those before it. So the owner comes first, while the expiry is still the old one: the other way round, whoever took
-- an expired lock over would extend it for its old owner.
INSERT INTO {table} ({key}, {owner}, {last}, {until})
VALUES (?, ?, {last_value}, {clock} + INTERVAL ? MICROSECOND)
ON DUPLICATE KEY UPDATE
    {owner} = IF({is_free}, VALUES({owner}), {owner}),
    {last} = IF({owner} = VALUES({owner}), VALUES({last}), {last}),
    {until} = IF({owner} = VALUES({owner}), VALUES({until}), {until})
