-- The common case first, before anything else is even defined: see join_fast.lua. KEYS and ARGV as in renew.lua.
-- Places that stand alone in their lines, on leases that are neither fixed nor changed, are renewed with two calls each.
local call, pcall, match = redis.call, redis.pcall, string.match
local now, answers = clock(), {}
local answered, at, now_text, hour = 0, 2 + LINES, string.format('%d', now), now - now % 3600000000
for i = 1, tonumber(ARGV[1]) do
  local key, id, known = KEYS[tonumber(ARGV[at])] .. ':c', ARGV[at + 1], ARGV[at + 2]
  local root = call('GET', key)
  local kind = root and string.byte(root)
  if (kind == 42 or kind == 61) and ARGV[at + 4] == '0' then
    local ticket, ends, seen, since, only, lease, rest
    if kind == 42 then
      ticket, only, lease, rest = match(root, '^%*(%d+) (%x+) (%d+) (.*)$')
      ends, seen, since = ticket + lease, ticket, ticket
    else
      ticket, ends, seen, since, only, lease, rest =
        match(root, '^=(%d+) (%d+) (%d+) (%d+) 0 (%x+) (%d+) (.*)$')
    end
    if only == id and lease == ARGV[at + 3] and (known == '0' or known == ticket) and now >= tonumber(seen)
      and tonumber(ends) > now
    then
      local deadline = math.max(tonumber(ends), now + lease)
      local renewed = '=' .. ticket .. ' ' .. string.format('%d', deadline) .. ' ' .. now_text .. ' ' .. since .. ' 0 '
        .. id .. ' ' .. lease .. ' ' .. rest
      -- Once an hour is enough for a root that lives for longer than a day; out of memory, Redis refuses this: see below.
      local done = tonumber(seen) > hour and pcall('SET', key, renewed, 'KEEPTTL') or pcall('SET', key, renewed, 'PX', ROOT_MS)
      if not done.err then
        answers[i] = tonumber(ticket)
        answered = answered + 1
      end
    end
  end
  at = at + 5
end
if answered == tonumber(ARGV[1]) then
  return answers
end

