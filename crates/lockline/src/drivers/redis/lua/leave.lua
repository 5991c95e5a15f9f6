-- Removes a claim, in, waiting or unknown: nothing of it remains.
-- KEYS: the line. ARGV: id, name.
local id = ARGV[1]
local line = read(KEYS[1], ARGV[2], 0, id)
if line.only == id then
  -- Nobody else stands there, so there is nothing to look at and nobody to ring.
  call('DEL', line.key)
  return
end
if not line.exists then
  return
end
line.now = clock()
catch_up(line)
if line.raw then
  remove(line, id, parse(line.raw))
end
settle(line, nil)
close(line)
