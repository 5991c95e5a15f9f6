-- As RLock and RFencedLock take a lock, but a field that is ours already is only extended: our holds are counted in the
-- process, and a request that is sent twice must not count twice.
-- KEYS for each lock: the hash, the counter of tokens, the queue of a fair lock; ARGV for each: our field, the lease in
-- ms, whether a token is taken, nothing.
-- Answers for each {1, token} ours, {2} ours but evicted, {3} somebody waits for it as a fair lock, {4} no lock at all,
-- {0, rest of the holder's lease in ms; -1 none}.
local function acquire(hash, counter, queue, field, lease, fenced)
  local ours = redis.pcall('HEXISTS', hash, field)
  if type(ours) == 'table' then
    return { 4 }
  end
  if ours == 1 then
    redis.call('PEXPIRE', hash, lease)
    return { 1, redis.call('GET', counter) or '0' }
  end
  if redis.call('HEXISTS', hash, 'evicted:' .. field) == 1 then
    return { 2 }
  end
  if redis.call('EXISTS', queue) == 1 then
    return { 3 }
  end
  if redis.call('EXISTS', hash) == 1 then
    return { 0, redis.call('PTTL', hash) }
  end
  -- The token first, as Redisson does: a script that fails midway keeps its writes, and a token nobody has does no harm.
  local token = '0'
  if fenced == '1' then
    redis.call('INCR', counter)
    token = redis.call('GET', counter)
  end
  redis.call('HINCRBY', hash, field, 1)
  redis.call('PEXPIRE', hash, lease)
  return { 1, token }
end

local answers = {}
for n = 1, #KEYS / 3 do
  answers[n] = acquire(
    KEYS[3 * n - 2], KEYS[3 * n - 1], KEYS[3 * n], ARGV[4 * n - 3], ARGV[4 * n - 2], ARGV[4 * n - 1])
end
return answers
