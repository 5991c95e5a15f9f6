-- Compare and evict. KEYS[1] the lock; ARGV[1] its value, ARGV[2] whether at once. Answers {1} if that was the value,
-- {-1} if it has no end, so that waiting for it would be for ever. Otherwise another value stands in its place until its
-- lease ends: neither we nor others can extend or release it.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return { 0 }
end
if ARGV[2] == '1' then
  redis.call('DEL', KEYS[1])
  return { 1 }
end
local rest = redis.call('PTTL', KEYS[1])
if rest < 0 then
  return { -1 }
end
if string.sub(ARGV[1], 1, 8) ~= 'evicted ' then
  redis.call('SET', KEYS[1], 'evicted ' .. ARGV[1], 'PX', math.max(rest, 1))
end
return { 1 }
