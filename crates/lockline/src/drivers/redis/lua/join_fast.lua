-- The common cases first, before anything else is even defined (Lua makes every function of the prelude anew with each
-- call, and that costs more than these do). They do what the rest would do, with a handful of calls; generated histories
-- are run on both. KEYS and ARGV as in join.lua. Only owners of one process come here.
if ARGV[8] == '' then
  local call, key, id, now = redis.call, KEYS[1], ARGV[1], clock()
  local v = call('HMGET', key, 's', 'k', 'n', 'w', 'o', 'm', 'x', id)
  local mode, lease = ARGV[5], tonumber(ARGV[2])
  local seen, waiting, soonest = tonumber(v[1] or 0), v[4], tonumber(v[6] or 0)
  local deadline = now + lease
  -- Nobody stands there, and it may be had.
  local free = not v[1] and now >= GUARD and (mode ~= 'p' or tonumber(ARGV[6]) <= tonumber(ARGV[7]))
  -- Several stand there, none of them lapsed or about to; the clock is not behind, no guard has ended since the last
  -- verb, this claim is new, must wait, and lives no longer than the keys do.
  local behind = v[1] and not v[5] and not v[8] and now >= seen and (GUARD == 0 or seen >= GUARD)
    and soonest > now + math.min(1000000, lease / 3) + 1 and deadline <= tonumber(v[7])
    and (waiting ~= '0' or v[2] == 'x' or mode == 'x')
  local at = string.format('%.0f', now)
  if behind and ARGV[3] ~= '1' then
    call('HSET', key, 's', at)
    return { 3 }
  end
  if free or behind then
    local ticket, through = now, at
    local last = call('SET', key .. ':c', at, 'PX', '86400000', 'GET')
    if last and tonumber(last) >= now then
      ticket = tonumber(last) + 1
      through = string.format('%.0f', ticket)
      call('SET', key .. ':c', through, 'PX', '86400000')
    end
    local claim = through .. ' ' .. ARGV[2] .. ' 0 ' .. at .. ' ' .. ARGV[9]
    local ends = string.format('%.0f', deadline)
    if behind then
      local ahead = v[3] + waiting
      call('HSET', key, id, claim, 's', at, 'w', waiting + 1, 'm', deadline < soonest and ends or v[6])
      call('ZADD', key .. ':d', ends, id)
      call('ZADD', key .. ':w', through, id)
      if waiting == '0' then
        call('PEXPIRE', key .. ':w', math.ceil((v[7] - now) / 1000) + 1 + SPARE_MS)
      end
      return { 2, ticket, ahead, lease, -1, -1 }
    end
    if mode == 'p' then
      call('HSET', key, 's', at, 't', through, 'k', mode, 'n', '1', 'w', '0', 'o', id, 'e', ends, 'x', ends,
        'N', ARGV[4], id, claim, 'u', ARGV[6], 'l', ARGV[7], 'c', '1')
    else
      call('HSET', key, 's', at, 't', through, 'k', mode, 'n', '1', 'w', '0', 'o', id, 'e', ends, 'x', ends,
        'N', ARGV[4], id, claim)
    end
    call('PEXPIRE', key, math.ceil(lease / 1000) + 1 + SPARE_MS)
    return { 1, ticket }
  end
end

