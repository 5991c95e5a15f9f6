-- Who holds each, for people. KEYS as in redisson_acquire.lua. Answers for each {field, rest of its lease in ms, token},
-- or {} for no lock.
local answers = {}
for n = 1, #KEYS / 3 do
  local hash, counter = KEYS[3 * n - 2], KEYS[3 * n - 1]
  answers[n] = {}
  -- The lock of a reader or a writer has a field for the mode beside its holders. A large hash is something else.
  if redis.call('TYPE', hash).ok == 'hash' and redis.call('HLEN', hash) <= 64 then
    for _, field in ipairs(redis.call('HKEYS', hash)) do
      if field ~= 'mode' then
        answers[n] = { field, redis.call('PTTL', hash), redis.call('GET', counter) or '0' }
        break
      end
    end
  end
end
return answers
