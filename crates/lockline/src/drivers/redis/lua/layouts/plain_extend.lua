-- Compare and extend. KEYS, ARGV and answers as in plain_acquire.lua, but a lock that is free is not taken: {0, -2}.
local answers = {}
for n, key in ipairs(KEYS) do
  local mark, lease = ARGV[4 * n - 3], ARGV[4 * n - 2]
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    answers[n] = { 4 }
  elseif value and string.sub(value, 1, #mark) == mark then
    redis.call('PEXPIRE', key, lease)
    answers[n] = { 1, 0 }
  elseif value and string.sub(value, 1, 8 + #mark) == 'evicted ' .. mark then
    answers[n] = { 2 }
  else
    answers[n] = { 0, redis.call('PTTL', key) }
  end
end
return answers
