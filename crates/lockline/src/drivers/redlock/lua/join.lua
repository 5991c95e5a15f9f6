-- One node of a quorum: stands a claim in line on the ticket that it brings along, or finds it there and extends it.
-- Must agree, step by step, with `Line::propose` in line/proposal.rs. How a line is stored, and its rules, are those of one server.
-- KEYS: the line. ARGV: the claim, and whether it may wait, as there; the ticket.
-- Answers as `standing`; {4} if its identity stands in the line in another mode; {5, last} if its ticket is not larger
-- than the last one of this line.
local id, lease, name, tail = take_apart(ARGV[1])
lease = tonumber(lease)
local may_wait = ARGV[2] == '1' or ARGV[2] == 'w'
local proposed = tonumber(ARGV[3])
local now = clock()
local line = read(KEYS[1], name, now, id)
catch_up(line)

local h = line.raw and parse(line.raw)
if h and (h.closed or h.ticket >= proposed) then
  if not h.closed then
    extend(line, id, h, lease)
  end
  settle(line, id)
  local answer = standing(line, id, h)
  close(line)
  return answer
elseif h then
  -- It comes again with a larger ticket: it gives its old place up, whatever becomes of the new one.
  open_door(line)
  remove(line, id, h)
  catch_up(line)
end

settle(line, nil)
h = claim_of(tail)
h.lease, h.since = lease, int(now)
local identity = h.shared and identity_of(h)

local ticket = h.shared and call('HGET', line.key, 'i:' .. identity)
if ticket then
  local place = 'p:' .. ticket
  local ids = call('HGET', line.key, place)
  local first = hold(line, string.match(ids, '^%x+'))
  h.ticket = first.ticket
  local refusal
  if first.mode ~= h.mode then
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
local last = math.max(line.last, GUARD - 1)
local refusal
if not is_in and not may_wait then
  refusal = { 3 }
elseif proposed <= last then
  refusal = { 5, last }
end
if refusal then
  close(line)
  return refusal
end
-- The last ticket outlives its line: one that was in is never taken again.
h.ticket, line.last = proposed, proposed

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
  set(line, 'i:' .. identity, ARGV[3])
  set(line, 'p:' .. ARGV[3], id)
end
set_deadline(line, id, now + lease, lease)
local answer
if is_in then
  take(line, h)
  answer = h.ticket
else
  call('ZADD', line.key .. ':w', ARGV[3], id)
  line.waiting = line.waiting + 1
  line.stretch = line.stretch or line.waiting == 1
  line.changed = true
  answer = standing(line, id, h, line.n + line.waiting - 1)
end
close(line)
return answer
