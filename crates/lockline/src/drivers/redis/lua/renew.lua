-- Extends places, and tells where each stands. Never makes one.
-- KEYS: the lines, LINES of them. ARGV: how many places; the lines' names; then for each place which line it is in, its id, its
-- ticket (or 0), lease, and whether this is the one renewal of a fixed lease.
-- `now` and `answers`, with what was answered already, come from renew_fast.lua.
local lines = {}

-- The final renewal of a fixed lease: sets the deadline, once. A copy that comes later does not move it.
local function fix(line, id, h, lease)
  if not h.fixed then
    h.lease, h.fixed = lease, true
    store(line, id, h)
    set_deadline(line, id, now + lease, lease)
  end
end

-- One place: the number of its line, id, ticket or 0, lease, and whether it is the last renewal.
local function renew(k, id, ticket, lease, last)
  local line = lines[k]
  if not line then
    line = read(KEYS[k], ARGV[1 + k], now, id)
    catch_up(line)
    settle(line, nil)
    lines[k] = line
  elseif #line.set > 0 then
    -- What an earlier place of this batch changed must be there to be read.
    open_door(line)
    call('HSET', line.key, unpack(line.set))
    line.set = {}
  end
  local h = line.n + line.waiting > 0 and hold(line, id)
  if h and (ticket == 0 or ticket == h.ticket) and not h.closed then
    if last and h.ticket <= line.through then
      fix(line, id, h, lease)
    else
      extend(line, id, h, lease)
    end
  end
  return standing(line, id, h)
end

at = 2 + LINES
for i = 1, tonumber(ARGV[1]) do
  if not answers[i] then
    answers[i] = renew(tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[at + 4] == '1')
  end
  at = at + 5
end

for _, line in pairs(lines) do
  close(line)
end
return answers
