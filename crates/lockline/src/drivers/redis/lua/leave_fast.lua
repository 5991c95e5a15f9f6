-- The common cases first, before anything else is even defined: see join_fast.lua. KEYS and ARGV as in leave.lua.
local v = redis.call('HMGET', KEYS[1], 'o', 's', 'k', 't', 'w', 'm', ARGV[1])
if v[1] == ARGV[1] then
  -- The only claim leaves, so there is nothing to look at and nobody to ring.
  redis.call('DEL', KEYS[1])
  return
end
if v[7] and v[3] == 'x' and v[5] ~= '0' and v[6] then
  -- Who is in alone leaves, and the next gets in. None has lapsed, the clock is not behind, no guard has ended since the
  -- last verb.
  local call, key, id, now, seen = redis.call, KEYS[1], ARGV[1], clock(), tonumber(v[2])
  local ticket, shared = string.match(v[7], '^(%d+) %d+ %d %d+ %a %d+ %d+ (%d)')
  if shared == '0' and tonumber(ticket) <= tonumber(v[4]) and now >= seen and now < tonumber(v[6])
    and (GUARD == 0 or seen >= GUARD)
  then
    local head = call('ZRANGE', key .. ':w', 0, 0)[1]
    local through, process = string.match(call('HGET', key, head), '^(%d+) %d+ %d %d+ x %d+ %d+ 0 (%x+)')
    if through then
      call('ZREM', key .. ':w', head)
      call('ZREM', key .. ':d', id)
      call('HDEL', key, id)
      call('HSET', key, 't', through, 'w', v[5] - 1, 's', string.format('%.0f', now))
      call('PUBLISH', BELL .. process, through .. ' ' .. head .. ' in ' .. ARGV[2])
      return
    end
  end
end

