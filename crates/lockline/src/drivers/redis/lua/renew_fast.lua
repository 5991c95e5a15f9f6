-- The common case first, before anything else is even defined: see join_fast.lua. KEYS and ARGV as in renew.lua.
-- Places that stand alone in their lines, on leases that are neither fixed nor changed, are renewed with two calls each.
local now, answers = clock(), {}
local answered, at, now_text = 0, 2 + #KEYS, string.format('%d', now)
for i = 1, tonumber(ARGV[1]) do
  local key, id, known = KEYS[tonumber(ARGV[at])] .. ':c', ARGV[at + 1], ARGV[at + 2]
  -- A write that Redis never refuses: see `open_door`.
  local root = redis.call('GETEX', key, 'PX', ROOT_MS)
  local kind = root and string.byte(root)
  if (kind == 42 or kind == 61) and ARGV[at + 4] == '0' then
    local ticket, ends, seen, since, only, lease, rest
    if kind == 42 then
      ticket, only, lease, rest = string.match(root, '^%*(%d+) (%x+) (%d+) (.*)$')
      ends, seen, since = ticket + lease, ticket, ticket
    else
      ticket, ends, seen, since, only, lease, rest =
        string.match(root, '^=(%d+) (%d+) (%d+) (%d+) 0 (%x+) (%d+) (.*)$')
    end
    if only == id and lease == ARGV[at + 3] and (known == '0' or known == ticket) and now >= tonumber(seen)
      and tonumber(ends) > now
    then
      local deadline = math.max(tonumber(ends), now + lease)
      redis.call('SET', key, '=' .. ticket .. ' ' .. string.format('%d', deadline) .. ' ' .. now_text .. ' ' .. since .. ' 0 '
        .. id .. ' ' .. lease .. ' ' .. rest, 'KEEPTTL')
      answers[i] = tonumber(ticket)
      answered = answered + 1
    end
  end
  at = at + 5
end
if answered == tonumber(ARGV[1]) then
  return answers
end

