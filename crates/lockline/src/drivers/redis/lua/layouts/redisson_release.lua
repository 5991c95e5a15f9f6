-- KEYS[1] the hash; ARGV[1] our field, ARGV[2] the channel. Our hold count is always 1, so letting go is deleting. A copy
-- of this that comes late finds no field and does nothing: Redisson needs its latch for what the field does here.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], '0')
end
return {}
