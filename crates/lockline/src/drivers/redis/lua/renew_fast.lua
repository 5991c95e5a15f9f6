-- The common case first, before anything else is even defined: see join_fast.lua. KEYS and ARGV as in renew.lua.
-- Places that stand alone in their lines, on leases that are neither fixed nor changed, are renewed with two calls each.
local now, answers = clock(), {}
local answered, at, now_text = 0, 2 + #KEYS, string.format('%d', now)
for i = 1, tonumber(ARGV[1]) do
  local key, id, known = KEYS[tonumber(ARGV[at])] .. ':c', ARGV[at + 1], ARGV[at + 2]
  -- A write that Redis never refuses: see `open_door`.
  local root = redis.call('GETEX', key, 'PX', '86400000')
  if root and string.byte(root) == 61 and ARGV[at + 4] == '0' then
    local ticket, ends, seen, only, lease, rest =
      string.match(root, '^=(%d+) (%d+) (%d+) (%x+) (%d+) 0 (.*)$')
    if only == id and lease == ARGV[at + 3] and (known == '0' or known == ticket) and now >= tonumber(seen)
      and tonumber(ends) > now
    then
      local deadline = math.max(tonumber(ends), now + lease)
      redis.call('SET', key, '=' .. ticket .. ' ' .. string.format('%d', deadline) .. ' ' .. now_text .. ' ' .. id .. ' '
        .. lease .. ' 0 ' .. rest, 'KEEPTTL')
      answers[i] = { 1, tonumber(ticket) }
      answered = answered + 1
    end
  end
  at = at + 5
end
if answered == tonumber(ARGV[1]) then
  return answers
end

