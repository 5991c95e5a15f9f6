-- The common case first, before anything else is even defined: see join_fast.lua. KEYS and ARGV as in renew.lua.
-- Places that stand alone in their lines, on leases that are neither fixed nor changed, are renewed with three calls each.
local now, answers = clock(), {}
local answered, at = 0, 2 + #KEYS
for i = 1, tonumber(ARGV[1]) do
  local key, id, known = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2]
  local v = redis.call('HMGET', key, 'o', 's', 'e', id)
  local deadline = tonumber(v[3] or 0)
  if v[1] == id and ARGV[at + 4] == '0' and now >= tonumber(v[2]) and deadline > now then
    local ticket, lease, flags = string.match(v[4], '^(%d+) (%d+) (%d)')
    if flags == '0' and lease == ARGV[at + 3] and (known == '0' or known == ticket) then
      deadline = math.max(deadline, now + lease)
      -- First what Redis never refuses: see `open_door`.
      redis.call('PEXPIRE', key, math.ceil((deadline - now) / 1000) + 1 + SPARE_MS)
      local ends = string.format('%.0f', deadline)
      redis.call('HSET', key, 'e', ends, 'x', ends, 's', string.format('%.0f', now))
      answers[i] = { 1, tonumber(ticket) }
      answered = answered + 1
    end
  end
  at = at + 5
end
if answered == tonumber(ARGV[1]) then
  return answers
end

