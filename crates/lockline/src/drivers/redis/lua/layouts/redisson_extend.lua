-- What Redisson's watchdog does, for each lock that is ours. KEYS and answers as in redisson_acquire.lua; the last of
-- ARGV for each lock is the token that we know, or nothing. A lock that is free is not taken: {0, -2}; one that is ours
-- with another token is not extended.
local function extend(hash, counter, field, lease, known)
  local ours = redis.pcall('HEXISTS', hash, field)
  if type(ours) == 'table' then
    return { 4 }
  end
  if ours == 1 then
    local token = redis.call('GET', counter) or '0'
    if known == '' or known == token then
      redis.call('PEXPIRE', hash, lease)
    end
    return { 1, token }
  end
  if redis.call('HEXISTS', hash, 'evicted:' .. field) == 1 then
    return { 2 }
  end
  return { 0, redis.call('PTTL', hash) }
end

local answers = {}
for n = 1, #KEYS / 3 do
  answers[n] = extend(KEYS[3 * n - 2], KEYS[3 * n - 1], ARGV[4 * n - 3], ARGV[4 * n - 2], ARGV[4 * n])
end
return answers
