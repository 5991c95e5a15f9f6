-- Takes each lock that is free; extends each that is ours already, which settles an unknown outcome: whoever does not
-- know whether its SET took effect asks here.
-- KEYS the locks; for each of them in ARGV: what our value begins with, the lease in ms, our value, nothing.
-- Answers for each {1, 0} ours, {2} ours but evicted, {4} no lock at all, {0, rest of the holder's lease in ms; -1 none}.
local answers = {}
for n, key in ipairs(KEYS) do
  local mark, lease, text = ARGV[4 * n - 3], ARGV[4 * n - 2], ARGV[4 * n - 1]
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    answers[n] = { 4 }
  elseif not value then
    redis.call('SET', key, text, 'PX', lease)
    answers[n] = { 1, 0 }
  elseif string.sub(value, 1, #mark) == mark then
    redis.call('PEXPIRE', key, lease)
    answers[n] = { 1, 0 }
  elseif string.sub(value, 1, 8 + #mark) == 'evicted ' .. mark then
    answers[n] = { 2 }
  else
    answers[n] = { 0, redis.call('PTTL', key) }
  end
end
return answers
