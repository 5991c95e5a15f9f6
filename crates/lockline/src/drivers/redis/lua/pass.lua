-- One who is in alone leaves, and another claim of the same client stands in line, in this order: what leave_fast.lua and
-- join_fast.lua do, in one call. It does nothing where it is not so simple: then they are for that.
-- KEYS: the line. ARGV: who leaves, the lock's name, the client's process; of the claim that joins the id, the lease and what
-- line.lua calls TAIL; 1 if bells are to be rung as usual. Otherwise the answer is the bell for a claim of the same process.
-- Answers the ticket of whoever joins, and how many places are before it; then, if one of the same process has got in, its ticket
-- and, unless a bell was rung, its id. Nothing if nothing was done. All numbers here are whole: see join_fast.lua.
local call, key, id, new = redis.call, KEYS[1], ARGV[1], ARGV[4]
local v = call('HMGET', key, 's', 'k', 't', 'w', 'm', 'x', 'z', 'r', id, new)
if not v[9] or v[10] or v[2] ~= 'x' or not v[5] or not v[8] then
  return
end
local now, lease, seen, soonest = clock(), tonumber(ARGV[5]), tonumber(v[1]), tonumber(v[5])
local from, shared = string.match(v[9], '^(%d+) %d+ %d %d+ %a %d+ %d+ (%d)')
local ticket, deadline, waiting = math.max(now, v[7] + 1), now + lease, v[4] ~= '0'
-- None has lapsed or is about to; the clock is not behind, no guard has ended since the last verb; the new claim lives no longer
-- than the keys do, and the root knows its ticket.
if shared ~= '0' or tonumber(from) > tonumber(v[3]) or now < seen or GUARD > 0 and seen < GUARD
  or soonest <= now + math.min(1000000, lease / 3) + 1 or deadline > tonumber(v[6]) or ticket > tonumber(v[8])
then
  return
end
local through, head, at = string.format('%d', ticket), false, string.format('%d', now)
local next_through, process = through
if waiting then
  -- The first is a write that Redis never refuses.
  local popped = call('ZPOPMIN', key .. ':w')
  head = popped[1]
  if not head then
    return
  end
  next_through, process = string.match(call('HGET', key, head) or '', '^(%d+) %d+ %d %d+ x %d+ %d+ 0 (%x+)')
  if not next_through then
    -- A reader, or somebody of an identity: back. The key may be a new one.
    call('ZADD', key .. ':w', popped[2], head)
    call('PEXPIREAT', key .. ':w', math.ceil(v[6] / 1000) + 1 + SPARE_MS)
    return
  end
end
call('ZREM', key .. ':d', id)
call('HDEL', key, id)
local ends = string.format('%d', deadline)
call('HSET', key, new, through .. ' ' .. ARGV[5] .. ' 0 ' .. at .. ' ' .. ARGV[6], 's', at,
  't', next_through, 'm', deadline < soonest and ends or v[5], 'z', through, 'e', next_through .. ' ' .. at)
call('ZADD', key .. ':d', ends, new)
if not waiting then
  return { ticket, 0, ticket }
end
call('ZADD', key .. ':w', through, new)
if v[4] == '1' then
  -- It was the only one, so the key is a new one.
  call('PEXPIREAT', key .. ':w', math.ceil(v[6] / 1000) + 1 + SPARE_MS)
end
local is_ours = process == ARGV[3]
if is_ours and ARGV[7] == '0' then
  return { ticket, tonumber(v[4]), next_through, head }
end
call('PUBLISH', BELL .. process, next_through .. ' ' .. head .. ' in ' .. ARGV[2])
return { ticket, tonumber(v[4]), is_ours and next_through or nil }
