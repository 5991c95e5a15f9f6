-- The common cases first, before anything else is even defined (Lua makes every function of line.lua and rules.lua anew
-- with each call, and that costs more than these do). They do what the rest would do, with a handful of calls; generated
-- histories are run on both. KEYS and ARGV as in join.lua. Only owners of one process come here.
-- All numbers here are whole, so '%d' writes them as `int` in line.lua does, and takes a fraction of the time.
if ARGV[2] == '2' or ARGV[2] == '1' or ARGV[2] == '0' then
  local call, key, claim, now = redis.call, KEYS[1], ARGV[1], clock()
  local root, kind, v, id, lease_text, length, rest
  if ARGV[2] == '2' then
    -- Several are expected there: then the root says nothing that the hash does not.
    id, lease_text, length, rest = string.match(claim, '^(%x+) (%d+) (%d+) (.*)$')
    v = call('HMGET', key, 's', 'k', 'n', 'w', 'm', 'x', id, 'z', 'r')
  end
  if not (v and v[8]) then
    root = call('GET', key .. ':c') or '0'
    kind = string.byte(root)
  end
  if kind and kind > 47 and kind < 58 and now >= GUARD then
    -- Nobody stands there, and it may be had. If the last ticket is one of the past, this one is the time, and so is the
    -- rest of what is to be remembered.
    local last = tonumber(root)
    if last < now then
      local hour = now - now % 3600000000
      if last > hour then
        -- What was said in this hour about how long it lives still holds, and is dear to say again.
        call('SET', key .. ':c', '*' .. string.format('%d', now) .. ' ' .. claim, 'KEEPTTL')
      else
        call('SET', key .. ':c', '*' .. string.format('%d', now) .. ' ' .. claim, 'PX', ROOT_MS)
      end
      return now
    end
  elseif kind == 43 and not v then
    id, lease_text, length, rest = string.match(claim, '^(%x+) (%d+) (%d+) (.*)$')
    v = call('HMGET', key, 's', 'k', 'n', 'w', 'm', 'x', id, 'z', 'r')
  end
  if v and v[1] then
    local tail, lease = string.sub(rest, length + 2), tonumber(lease_text)
    local seen, waiting, soonest, deadline = tonumber(v[1]), v[4], tonumber(v[5] or 0), now + lease
    -- Several stand there, one of them in, none lapsed or about to; the clock is not behind, no guard has ended since the
    -- last verb, this claim is new, must wait, and lives no longer than the keys do.
    if not v[7] and v[3] ~= '0' and now >= seen and (GUARD == 0 or seen >= GUARD)
      and soonest > now + math.min(1000000, lease / 3) + 1 and deadline <= tonumber(v[6])
      and (waiting ~= '0' or v[2] == 'x' or string.byte(tail) == 120)
    then
      local at = string.format('%d', now)
      if ARGV[2] == '0' then
        call('HSET', key, 's', at)
        return { 3 }
      end
      local last = v[8] or string.sub(root, 2)
      local ticket = math.max(now, last + 1)
      local through, ends = string.format('%d', ticket), string.format('%d', deadline)
      -- The first write, here or in the root, is one that Redis refuses when it is out of memory: then nothing has happened.
      if not v[9] or ticket > tonumber(v[9]) then
        -- The root knows a ticket that is still to come, and need not be told of each.
        v[9] = string.format('%d', ticket + AHEAD)
        call('SET', key .. ':c', '+' .. v[9], 'PX', ROOT_MS)
      end
      call('HSET', key, id, through .. ' ' .. lease_text .. ' 0 ' .. at .. ' ' .. tail, 's', at, 'w', waiting + 1,
        'm', deadline < soonest and ends or v[5], 'z', through, 'r', v[9])
      call('ZADD', key .. ':d', ends, id)
      call('ZADD', key .. ':w', through, id)
      if waiting == '0' then
        call('PEXPIREAT', key .. ':w', math.ceil(v[6] / 1000) + 1 + SPARE_MS)
      end
      return { 2, ticket, v[3] + waiting, lease, -1, -1 }
    end
  end
end

