-- Stands a claim in line, or finds it there and extends it.
-- KEYS: the line. ARGV: the claim, as line.lua says; whether it may wait, 1 or 0, or 2 if it will probably have to, and
-- w or n for those that join_fast.lua leaves alone: of an identity, or asking for more permits than there are.
-- Answers as `standing`, and {4} if its identity stands in the line in another mode: it would wait for itself.
local id, lease, name, tail = take_apart(ARGV[1])
lease = tonumber(lease)
local may_wait = ARGV[2] == '1' or ARGV[2] == '2' or ARGV[2] == 'w'
local now = clock()
local line = read(KEYS[1], name, now, id)
catch_up(line)

if line.raw then
  -- A second try after a lost reply, sent late: its client counts the new lease from that second sending.
  local h = parse(line.raw)
  if not h.closed then
    extend(line, id, h, lease)
  end
  settle(line, id)
  local answer = standing(line, id, h)
  close(line)
  return answer
end

settle(line, nil)
local h = claim_of(tail)
h.lease, h.since = lease, int(now)
local identity = h.shared and identity_of(h)

local ticket = h.shared and call('HGET', line.key, 'i:' .. identity)
if ticket then
  local place = 'p:' .. ticket
  local ids = call('HGET', line.key, place)
  local first = hold(line, string.match(ids, '^%x+'))
  h.ticket = first.ticket
  local refusal
  if first.mode ~= h.mode or first.count ~= h.count or first.limit ~= h.limit then
    refusal = { 4 }
  elseif not may_wait and h.ticket > line.through then
    refusal = { 3 }
  end
  if refusal then
    close(line)
    return refusal
  end
  spread(line)
  call('HSET', line.key, id, pack(h), place, ids .. ' ' .. id)
  written = true
  set_deadline(line, id, now + lease, lease)
  local answer = standing(line, id, h)
  close(line)
  return answer
end

local is_in = line.waiting == 0 and fits(line, h) and not guard_rest(line)
if not is_in and not may_wait then
  close(line)
  return { 3 }
end

-- Tickets rise with the clock, and by the last one, which outlives its line for a day, even if the clock is set back.
h.ticket = math.max(now, GUARD, line.last + 1)
line.last = h.ticket

if is_in and not line.exists and not h.shared then
  line.only, line.claim, line.deadline = id, pack(h), now + lease
  take(line, h)
  close(line)
  return h.ticket
end

-- The first write, and one that Redis refuses when it is out of memory: then nothing has happened.
write_root(line, root_of_many(line))
spread(line)
if not line.many then
  set(line, 'N', name)
end
store(line, id, h)
if h.shared then
  set(line, 'i:' .. identity, int(h.ticket))
  set(line, 'p:' .. int(h.ticket), id)
end
set_deadline(line, id, now + lease, lease)
local answer
if is_in then
  take(line, h)
  answer = h.ticket
else
  call('ZADD', line.key .. ':w', int(h.ticket), id)
  line.waiting = line.waiting + 1
  line.stretch = line.stretch or line.waiting == 1
  line.changed = true
  answer = standing(line, id, h, line.n + line.waiting - 1)
end
close(line)
return answer
