-- Verbs of one client on lines in which nobody else is expected, many in one call: the common cases of join_fast.lua and
-- leave_fast.lua, and nothing else. What is not so simple is not done, and its client asks for it by itself.
-- KEYS: the root of each line, as often as there are verbs. ARGV: for each the claim that joins, or the id that leaves.
-- Answers for each the ticket of who got in, 0 for who has left, and nothing where nothing was done.
local call, pcall, byte, match = redis.call, redis.pcall, string.byte, string.match
local now, answers = clock(), {}
local hour, begins = now - now % 3600000000, '*' .. string.format('%d', now) .. ' '
for i = 1, #KEYS do
  local root, what = call('GET', KEYS[i]) or '0', ARGV[i]
  local kind, answer = byte(root), false
  if #what > 32 then
    local last = kind > 47 and kind < 58 and now >= GUARD and tonumber(root)
    if last and last < now then
      -- Out of memory, Redis refuses this.
      local done = last > hour and pcall('SET', KEYS[i], begins .. what, 'KEEPTTL')
        or pcall('SET', KEYS[i], begins .. what, 'PX', ROOT_MS)
      answer = not done.err and now
    end
  elseif kind == 42 then
    local ticket, id = match(root, '^%*(%d+) (%x+)')
    answer = id == what and not pcall('SET', KEYS[i], ticket, 'KEEPTTL').err and 0
  end
  answers[i] = answer
end
return answers
