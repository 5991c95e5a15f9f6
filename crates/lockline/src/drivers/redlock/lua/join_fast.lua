-- The common cases first, before anything else is even defined: as in ../../redis/lua/join_fast.lua, but with the ticket
-- that the claim brings along. KEYS and ARGV as in join.lua. Only owners of one process come here.
if ARGV[2] == '1' or ARGV[2] == '0' then
  local root = redis.call('GET', KEYS[1] .. ':c') or '0'
  local kind, ticket, now = string.byte(root), tonumber(ARGV[3]), clock()
  if kind > 47 and kind < 58 and now >= GUARD then
    -- Nobody stands there, and it may be had: ticket, vote and token in one request.
    local last = math.max(tonumber(root), GUARD - 1)
    if ticket <= last then
      return { 5, last }
    end
    local at, lease = string.format('%d', now), string.match(ARGV[1], '^%x+ (%d+)')
    redis.call('SET', KEYS[1] .. ':c', '=' .. ARGV[3] .. ' ' .. string.format('%d', now + lease) .. ' ' .. at .. ' ' .. at
      .. ' 0 ' .. ARGV[1], 'PX', ROOT_MS)
    return ticket
  elseif kind == 43 then
    local call, key = redis.call, KEYS[1]
    local id, lease_text, length, rest = string.match(ARGV[1], '^(%x+) (%d+) (%d+) (.*)$')
    local tail, lease = string.sub(rest, length + 2), tonumber(lease_text)
    local v = call('HMGET', key, 's', 'k', 'n', 'w', 'm', 'x', id)
    local seen, waiting, soonest, deadline = tonumber(v[1] or 0), v[4], tonumber(v[5] or 0), now + lease
    -- Several stand there, one of them in, none lapsed or about to; the clock is not behind, no guard has ended since the
    -- last verb, this claim is new, must wait, and lives no longer than the keys do.
    if v[1] and not v[7] and v[3] ~= '0' and now >= seen and (GUARD == 0 or seen >= GUARD)
      and soonest > now + math.min(1000000, lease / 3) + 1 and deadline <= tonumber(v[6])
      and (waiting ~= '0' or v[2] == 'x' or string.byte(tail) == 120)
    then
      local at, last = string.format('%d', now), math.max(tonumber(root), GUARD - 1)
      if ARGV[2] ~= '1' or ticket <= last then
        call('HSET', key, 's', at)
        return ARGV[2] ~= '1' and { 3 } or { 5, last }
      end
      local ends = string.format('%d', deadline)
      -- The first write, and one that Redis refuses when it is out of memory: then nothing has happened.
      call('SET', key .. ':c', '+' .. ARGV[3], 'PX', ROOT_MS)
      call('HSET', key, id, ARGV[3] .. ' ' .. lease_text .. ' 0 ' .. at .. ' ' .. tail, 's', at, 'w', waiting + 1,
        'm', deadline < soonest and ends or v[5])
      call('ZADD', key .. ':d', ends, id)
      call('ZADD', key .. ':w', ARGV[3], id)
      if waiting == '0' then
        call('PEXPIREAT', key .. ':w', math.ceil(v[6] / 1000) + 1 + SPARE_MS)
      end
      return { 2, ticket, v[3] + waiting, lease, -1, -1 }
    end
  end
end

