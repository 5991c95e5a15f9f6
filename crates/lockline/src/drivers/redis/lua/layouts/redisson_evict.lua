-- Compare and evict, as plain_evict.lua does it. KEYS[1] the hash; ARGV[1] the holder's field, ARGV[2] whether at once,
-- ARGV[3] the channel.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return { 0 }
end
if ARGV[2] == '1' then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], '0')
  return { 1 }
end
local rest = redis.call('PTTL', KEYS[1])
if rest < 0 then
  return { -1 }
end
if string.sub(ARGV[1], 1, 8) ~= 'evicted:' then
  redis.call('HSET', KEYS[1], 'evicted:' .. ARGV[1], 1)
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return { 1 }
