-- Compare and delete. KEYS[1] the lock; ARGV[1] what our value begins with. A value that was evicted stays until its
-- lease ends: that is what keeps the next holder from overlapping.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return {}
