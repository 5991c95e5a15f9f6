-- Removes a claim, in, waiting or unknown: nothing of it remains.
-- KEYS: the line. ARGV: id, name, and l if its client asks for the line, m if several are expected there.
-- Answers behind which ticket the client's own begin if it was lent the line; 1 if it is known that another claim of the same
-- client has got in by it; nothing otherwise.
local id = ARGV[1]
local line = read(KEYS[1], ARGV[2], clock(), id)
if not line.exists then
  return
end
catch_up(line)
if line.raw then
  remove(line, id, parse(line.raw))
end
settle(line, nil)
close(line)
