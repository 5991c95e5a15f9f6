-- Who holds each, for people. KEYS the locks. Answers for each {value, rest of its lease in ms, 0}, or {} for no lock.
local answers = {}
for n, key in ipairs(KEYS) do
  answers[n] = {}
  if redis.call('TYPE', key).ok == 'string' then
    answers[n] = { redis.call('GETRANGE', key, 0, 1023), redis.call('PTTL', key), 0 }
  end
end
return answers
