-- The common cases first, before anything else is even defined: see join_fast.lua. KEYS and ARGV as in leave.lua.
local key, v, root, kind = KEYS[1]
if ARGV[3] == 'm' then
  -- Several are expected there: then the root says nothing that the hash does not.
  v = redis.call('HMGET', key, 's', 'k', 't', 'w', 'm', ARGV[1])
  kind = v[6] and 43
end
if not kind then
  root = redis.call('GET', key .. ':c')
  if not root then
    return
  end
  kind = string.byte(root)
end
if kind == 42 or kind == 61 then
  local ticket, id
  if kind == 42 then
    ticket, id = string.match(root, '^%*(%d+) (%x+)')
  else
    ticket, id = string.match(root, '^=(%d+) %d+ %d+ %d+ %d (%x+)')
  end
  if id == ARGV[1] then
    -- Whoever comes back again and again, and finds nobody, borrows the line: see `take_back` in line.lua.
    if ARGV[3] == 'l' then
      local now = clock()
      local last = string.format('%d', now + LENT_TICKETS)
      if now > tonumber(ticket) and now >= GUARD
        and not redis.pcall('SET', key .. ':l:' .. last, '', 'PX', LENT_MS).err
      then
        redis.call('SET', key .. ':c', '~' .. last, 'PX', ROOT_MS)
        return now
      end
    end
    -- The only claim leaves, so there is nothing to look at and nobody to ring. Whoever renewed may have been here for long.
    -- Out of memory, Redis refuses this as a first write: then see below.
    local left = kind == 42 and redis.pcall('SET', key .. ':c', ticket, 'KEEPTTL')
      or redis.pcall('SET', key .. ':c', ticket, 'PX', ROOT_MS)
    if not left.err then
      return
    end
  end
elseif kind == 43 then
  local call, id = redis.call, ARGV[1]
  v = v or call('HMGET', key, 's', 'k', 't', 'w', 'm', id)
  if v[6] and v[2] == 'x' and v[4] ~= '0' and v[5] then
    -- Who is in alone leaves, and the next gets in. None has lapsed, the clock is not behind, no guard has ended since
    -- the last verb.
    local now, seen = clock(), tonumber(v[1])
    local ticket, shared, own = string.match(v[6], '^(%d+) %d+ %d %d+ %a %d+ %d+ (%d) (%x+)')
    if shared == '0' and tonumber(ticket) <= tonumber(v[3]) and now >= seen and now < tonumber(v[5])
      and (GUARD == 0 or seen >= GUARD)
    then
      -- The first is a write that Redis never refuses.
      local popped = call('ZPOPMIN', key .. ':w')
      local head, through, process = popped[1]
      if head then
        through, process = string.match(call('HGET', key, head), '^(%d+) %d+ %d %d+ x %d+ %d+ 0 (%x+)')
      end
      if head and not through then
        -- A reader, or somebody of an identity: back, and as below. The key may be a new one.
        call('ZADD', key .. ':w', popped[2], head)
        call('PEXPIREAT', key .. ':w', math.ceil(call('HGET', key, 'x') / 1000) + 1 + SPARE_MS)
      elseif head then
        call('ZREM', key .. ':d', id)
        call('HDEL', key, id)
        local at = string.format('%d', now)
        call('HSET', key, 't', through, 'w', v[4] - 1, 's', at, 'e', through .. ' ' .. at)
        call('PUBLISH', BELL .. process, through .. ' ' .. head .. ' in ' .. ARGV[2])
        return process == own and 1 or nil
      end
    end
  end
elseif kind ~= 126 then
  return
end

