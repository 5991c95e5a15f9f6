-- Shows the place with this ticket out, if it is still there. Answers whether it was.
-- KEYS: the line. ARGV: ticket, whether at once, name.
local ticket, at_once = tonumber(ARGV[1]), ARGV[2] == '1'
local line = read(KEYS[1], ARGV[3], clock(), '')
if not line.exists then
  return 0
end
catch_up(line)

-- People do this, one at a time: reading the whole line is no harm.
local found = {}
local ids = line.only and { line.only } or call('ZRANGE', line.key .. ':d', 0, -1)
for _, id in ipairs(ids) do
  local h = line.n + line.waiting > 0 and hold(line, id)
  if h and h.ticket == ticket then
    found[#found + 1] = { id, h }
  end
end

for _, one in ipairs(found) do
  local id, h = one[1], one[2]
  ring(line, h, id, 'out')
  if ticket <= line.through and not at_once then
    -- Its holder may still be at work: its place stands until its lease ends. Its identity may queue again.
    open_door(line)
    h.closed = true
    store(line, id, h)
    if h.shared and call('HGET', line.key, 'i:' .. identity_of(h)) == int(ticket) then
      call('HDEL', line.key, 'i:' .. identity_of(h))
    end
  else
    remove(line, id, h)
  end
end
settle(line, nil)
close(line)
return #found > 0 and 1 or 0
