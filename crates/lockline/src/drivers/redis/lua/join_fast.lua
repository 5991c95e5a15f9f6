-- The common cases first, before anything else is even defined (Lua makes every function of line.lua and rules.lua anew
-- with each call, and that costs more than these do). They do what the rest would do, with a handful of calls; generated
-- histories are run on both. KEYS and ARGV as in join.lua. Only owners of one process come here.
-- All numbers here are whole, so '%d' writes them as `int` in line.lua does, and takes a fraction of the time.
if ARGV[8] == '' then
  local root = redis.call('GET', KEYS[1] .. ':c') or '0'
  local kind = string.byte(root)
  local now, mode = clock(), ARGV[5]
  if kind ~= 43 and kind ~= 61 and now >= GUARD and (mode ~= 'p' or tonumber(ARGV[6]) <= tonumber(ARGV[7])) then
    -- Nobody stands there, and it may be had.
    local ticket = math.max(now, tonumber(root) + 1)
    local at, lease, name = string.format('%d', now), ARGV[2], ARGV[4]
    local through = ticket == now and at or string.format('%d', ticket)
    redis.call('SET', KEYS[1] .. ':c', '=' .. through .. ' ' .. string.format('%d', now + lease) .. ' ' .. at .. ' '
      .. ARGV[1] .. ' ' .. lease .. ' 0 ' .. at .. ' ' .. #name .. ' ' .. name .. ' ' .. ARGV[9], 'PX', '86400000')
    return { 1, ticket }
  end
  if kind == 43 then
    local call, key, id, lease = redis.call, KEYS[1], ARGV[1], tonumber(ARGV[2])
    local v = call('HMGET', key, 's', 'k', 'n', 'w', 'm', 'x', id)
    local seen, waiting, soonest, deadline = tonumber(v[1] or 0), v[4], tonumber(v[5] or 0), now + lease
    -- Several stand there, none of them lapsed or about to; the clock is not behind, no guard has ended since the last
    -- verb, this claim is new, must wait, and lives no longer than the keys do.
    if v[1] and not v[7] and now >= seen and (GUARD == 0 or seen >= GUARD)
      and soonest > now + math.min(1000000, lease / 3) + 1 and deadline <= tonumber(v[6])
      and (waiting ~= '0' or v[2] == 'x' or mode == 'x')
    then
      local at = string.format('%d', now)
      if ARGV[3] ~= '1' then
        call('HSET', key, 's', at)
        return { 3 }
      end
      local ticket = math.max(now, tonumber(root) + 1)
      local through, ends = string.format('%d', ticket), string.format('%d', deadline)
      -- The first write, and one that Redis refuses when it is out of memory: then nothing has happened.
      call('SET', key .. ':c', '+' .. through, 'PX', '86400000')
      call('HSET', key, id, through .. ' ' .. ARGV[2] .. ' 0 ' .. at .. ' ' .. ARGV[9], 's', at, 'w', waiting + 1,
        'm', deadline < soonest and ends or v[5])
      call('ZADD', key .. ':d', ends, id)
      call('ZADD', key .. ':w', through, id)
      if waiting == '0' then
        call('PEXPIRE', key .. ':w', math.ceil((v[6] - now) / 1000) + 1 + SPARE_MS)
      end
      return { 2, ticket, v[3] + waiting, lease, -1, -1 }
    end
  end
end

