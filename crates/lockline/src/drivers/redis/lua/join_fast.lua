-- The common cases first, before anything else is even defined (Lua makes every function of line.lua and rules.lua anew
-- with each call, and that costs more than these do). They do what the rest would do, with a handful of calls; generated
-- histories are run on both. KEYS and ARGV as in join.lua. Only owners of one process come here.
-- All numbers here are whole, so '%d' writes them as `int` in line.lua does, and takes a fraction of the time.
if ARGV[2] == '1' or ARGV[2] == '0' then
  local root = redis.call('GET', KEYS[1] .. ':c') or '0'
  local kind = string.byte(root)
  local now = clock()
  if kind > 47 and kind < 58 and now >= GUARD then
    -- Nobody stands there, and it may be had. If the last ticket is one of the past, this one is the time, and so is the
    -- rest of what is to be remembered.
    local last = tonumber(root)
    if last < now then
      local hour = now - now % 3600000000
      if last > hour then
        -- What was said in this hour about how long it lives still holds, and is dear to say again.
        redis.call('SET', KEYS[1] .. ':c', '*' .. string.format('%d', now) .. ' ' .. ARGV[1], 'KEEPTTL')
      else
        redis.call('SET', KEYS[1] .. ':c', '*' .. string.format('%d', now) .. ' ' .. ARGV[1], 'PX', ROOT_MS)
      end
      return now
    end
  elseif kind == 43 then
    local call, key = redis.call, KEYS[1]
    local id, lease_text, length, rest = string.match(ARGV[1], '^(%x+) (%d+) (%d+) (.*)$')
    local tail, lease = string.sub(rest, length + 2), tonumber(lease_text)
    local v = call('HMGET', key, 's', 'k', 'n', 'w', 'm', 'x', id)
    local seen, waiting, soonest, deadline = tonumber(v[1] or 0), v[4], tonumber(v[5] or 0), now + lease
    -- Several stand there, none of them lapsed or about to; the clock is not behind, no guard has ended since the last
    -- verb, this claim is new, must wait, and lives no longer than the keys do.
    if v[1] and not v[7] and now >= seen and (GUARD == 0 or seen >= GUARD)
      and soonest > now + math.min(1000000, lease / 3) + 1 and deadline <= tonumber(v[6])
      and (waiting ~= '0' or v[2] == 'x' or string.byte(tail) == 120)
    then
      local at = string.format('%d', now)
      if ARGV[2] ~= '1' then
        call('HSET', key, 's', at)
        return { 3 }
      end
      local ticket = math.max(now, tonumber(root) + 1)
      local through, ends = string.format('%d', ticket), string.format('%d', deadline)
      -- The first write, and one that Redis refuses when it is out of memory: then nothing has happened.
      call('SET', key .. ':c', '+' .. through, 'PX', ROOT_MS)
      call('HSET', key, id, through .. ' ' .. lease_text .. ' 0 ' .. at .. ' ' .. tail, 's', at, 'w', waiting + 1,
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

