-- What every verb shares: a line, how it is stored, and the rule of who is in. What happens here must agree, step by
-- step, with `Line` in line/line.rs; generated histories are run on both.
--
-- Before this text stand `GUARD` and `GUARD_LENGTH` (until when nobody becomes in, and how long that is; 0 if there is
-- no restart guard), `BELL` (what the channels of processes begin with), `clock` (the present in microseconds) and
-- `SPARE_MS` (how much longer than their claims keys live; only tests have some).
--
-- A line is up to three keys under one hash tag, beside its token counter:
--   KEY      hash:  s  when a verb last saw it           t  places up to this ticket are in
--                   k n u l c  the front, see `take`     w  how many places wait
--                   o e  the only claim, its deadline    x  until when the keys live
--                   m  no claim lapses before            N  the lock's name
--                   ID  a claim: "ticket lease flags since mode count limit shared process ..." (see `parse`)
--                   i:IDENTITY  the ticket of its place  p:TICKET  the ids on a place of an identity
--   KEY:d    sorted set: deadline of each claim. There is none while a single claim stands in line and is in: a lock
--            that nobody waits for costs one hash.
--   KEY:w    sorted set: ticket of each waiting place, by the first id that stands on it
--   KEY:c    string: the last ticket. It outlives the line.

local call = redis.call

-- `..` and tostring() write 1.79e+15 for a time in microseconds.
local function int(n)
  return string.format('%.0f', n)
end

-- Out of memory, Redis refuses a script's first write if it is one that may grow, and lets everything pass after one
-- that may not. Whoever renews, leaves or evicts opens the door with a write that does nothing.
local written = false
local function open_door(line)
  if not written then
    call('HDEL', line.key, '')
    written = true
  end
end

-- Flags: 1 the deadline of a fixed lease was set, nothing moves it; 2 closed: evicted while in.
local function parse(raw)
  local ticket, lease, flags, since, tail = string.match(raw, '^(%d+) (%d+) (%d) (%d+) (.*)$')
  local mode, count, limit, shared, process, rest = string.match(tail, '^(%a) (%d+) (%d+) (%d) (%x+) (.*)$')
  flags = tonumber(flags)
  return {
    ticket = tonumber(ticket), lease = tonumber(lease), since = since,
    fixed = flags % 2 == 1, closed = flags >= 2,
    mode = mode, count = tonumber(count), limit = tonumber(limit),
    shared = shared == '1', process = process, tail = tail, rest = rest,
  }
end

local function pack(h)
  local flags = (h.fixed and 1 or 0) + (h.closed and 2 or 0)
  return int(h.ticket) .. ' ' .. int(h.lease) .. ' ' .. flags .. ' ' .. h.since .. ' ' .. h.tail
end

local function hold(line, id)
  local raw = call('HGET', line.key, id)
  return raw and parse(raw)
end

-- The identity that a shared place belongs to: the last of what stands in a claim.
local function identity_of(h)
  local owner, host, text = string.match(h.rest, '^%d+ (%d+) (%d+) (.*)$')
  return string.sub(text, owner + host + 1)
end

-- The ids on a place, in the order in which they came.
local function ids_on(line, h, id)
  if not h.shared then
    return { id }
  end
  local ids = {}
  for one in string.gmatch(call('HGET', line.key, 'p:' .. int(h.ticket)) or id, '%x+') do
    ids[#ids + 1] = one
  end
  return ids
end

-- Reads a line, and the claim with this id along with it.
local function read(key, name, now, id)
  local v = call('HMGET', key, 's', 't', 'k', 'n', 'u', 'l', 'c', 'w', 'o', 'e', 'x', 'm', id)
  return {
    key = key, name = name, now = now, id = id, exists = v[1] ~= false, set = {},
    seen = tonumber(v[1] or 0), through = tonumber(v[2] or 0),
    mode = v[3], n = tonumber(v[4] or 0), used = tonumber(v[5] or 0),
    limit = tonumber(v[6] or 0), limited = tonumber(v[7] or 0),
    waiting = tonumber(v[8] or 0), only = v[9], deadline = tonumber(v[10] or 0),
    expires = tonumber(v[11] or 0), soonest = tonumber(v[12] or 0), raw = v[13],
  }
end

-- Queues a field for the one HSET that `close` sends.
local function set(line, field, value)
  local s = line.set
  s[#s + 1] = field
  s[#s + 1] = value
end

-- A bound for the deadlines of many claims, which spares most verbs the look at all of them. It may be too low, because
-- a renewal does not touch it; never too high.
local function bound(line, soonest)
  line.soonest, line.bounded = soonest, true
end

-- Raises the bound to what it is.
local function look_for_soonest(line)
  local first = call('ZRANGE', line.key .. ':d', 0, 0, 'WITHSCORES')[2]
  bound(line, tonumber(first or 0))
end

local function ring(line, h, id, news)
  call('PUBLISH', BELL .. h.process, int(h.ticket) .. ' ' .. id .. ' ' .. news .. ' ' .. line.name)
end

-- The front: `n` places in `mode` are in; for permits `used` of them are taken, and the smallest limit among those
-- who hold is `limit`, which `limited` places gave.
local function fits(line, h)
  if line.n == 0 then
    return h.mode ~= 'p' or h.count <= h.limit
  elseif line.mode == 's' then
    return h.mode == 's'
  elseif line.mode == 'p' and h.mode == 'p' then
    return line.used + h.count <= math.min(h.limit, line.limit)
  end
  return false
end

local function limit_by(line, h)
  if line.limited == 0 or h.limit < line.limit then
    line.limit, line.limited = h.limit, 1
  elseif h.limit == line.limit then
    line.limited = line.limited + 1
  end
end

local function take(line, h)
  line.n = line.n + 1
  line.mode = h.mode
  if h.mode == 'p' then
    line.used, line.counted = line.used + h.count, true
    limit_by(line, h)
  end
  line.through = h.ticket
  line.changed = true
end

local function give_back(line, h)
  line.n = line.n - 1
  line.changed = true
  if h.mode ~= 'p' then
    return
  end
  line.used, line.counted = line.used - h.count, true
  if h.limit ~= line.limit then
    return
  end
  line.limited = line.limited - 1
  if line.limited == 0 and line.n > 0 then
    -- Only when clients believe in different limits: the smallest of those who are left must be looked for.
    local met = {}
    for _, id in ipairs(call('ZRANGE', line.key .. ':d', 0, -1)) do
      local other = hold(line, id)
      if other and other.ticket <= line.through and not met[other.ticket] then
        met[other.ticket] = true
        limit_by(line, other)
      end
    end
  end
end

-- Keys live until the last claim on them ends, and little longer: a claim further back would else move the end of all
-- keys with every join.
local function cover(line, deadline, lease)
  if deadline > line.expires then
    line.expires = deadline + (line.only and 0 or math.min(lease / 10, 100000))
    line.stretch = true
  end
end

-- From one claim to many: its deadline moves to the sorted set.
local function spread(line)
  if line.only then
    call('ZADD', line.key .. ':d', int(line.deadline), line.only)
    call('HDEL', line.key, 'o', 'e')
    written = true
    bound(line, line.deadline)
    line.only = false
    line.stretch = true
  end
end

-- Takes a claim off its place, and the place out of the line when nobody is left on it.
local function remove(line, id, h)
  if line.only == id then
    line.only, line.n, line.waiting, line.changed = false, 0, 0, true
    line.used, line.limit, line.limited = 0, 0, 0
    return
  end
  written = true
  call('ZREM', line.key .. ':d', id)
  if h.shared then
    local ids = ids_on(line, h, id)
    local place = 'p:' .. int(h.ticket)
    if #ids > 1 then
      local left = {}
      for _, one in ipairs(ids) do
        if one ~= id then left[#left + 1] = one end
      end
      call('HDEL', line.key, id)
      call('HSET', line.key, place, table.concat(left, ' '))
      if h.ticket > line.through and ids[1] == id then
        call('ZREM', line.key .. ':w', id)
        call('ZADD', line.key .. ':w', int(h.ticket), left[1])
      end
      return
    end
    local identity = 'i:' .. identity_of(h)
    call('HDEL', line.key, place)
    if call('HGET', line.key, identity) == int(h.ticket) then
      call('HDEL', line.key, identity)
    end
  end
  call('HDEL', line.key, id)
  if h.ticket <= line.through then
    give_back(line, h)
  else
    call('ZREM', line.key .. ':w', id)
    line.waiting = line.waiting - 1
    line.changed = true
  end
end

-- A clock behind the last seen one pulls every deadline with it, so that a step costs at most one lease.
local function pull_back(line)
  open_door(line)
  local last, most = 0, 0
  if line.only then
    local h = hold(line, line.only)
    line.deadline = math.min(line.deadline, line.now + h.lease)
    set(line, 'e', int(line.deadline))
    last, most = line.deadline, h.lease
  else
    local all = call('ZRANGE', line.key .. ':d', 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local h = hold(line, all[i])
      local deadline = math.min(tonumber(all[i + 1]), line.now + h.lease)
      call('ZADD', line.key .. ':d', int(deadline), all[i])
      last, most = math.max(last, deadline), math.max(most, h.lease)
    end
    look_for_soonest(line)
  end
  line.expires = 0
  cover(line, last, most)
end

-- Brings a line to the present: all lapsed claims go, from anywhere in it.
local function catch_up(line)
  if not line.exists then
    return
  end
  if line.now < line.seen then
    pull_back(line)
  end
  if line.only then
    if line.deadline <= line.now then
      remove(line, line.only)
    end
  elseif line.soonest <= line.now then
    for _, id in ipairs(call('ZRANGEBYSCORE', line.key .. ':d', '-inf', int(line.now))) do
      remove(line, id, hold(line, id))
      if id == line.id then line.raw = false end
    end
    look_for_soonest(line)
  end
  if line.n + line.waiting == 0 then
    -- Nobody of those who stood there is left: what comes now is a fresh line.
    call('DEL', line.key, line.key .. ':d', line.key .. ':w')
    written = true
    line.exists, line.raw, line.changed, line.bounded, line.set = false, false, false, false, {}
    line.expires, line.stretch, line.mode = 0, false, false
  end
end

-- What is left of the restart guard; nil if there is none. A clock that stepped back behind its beginning shortens it,
-- line by line, so that it never lasts longer than it was meant to.
local function guard_rest(line)
  if line.now >= GUARD then
    return nil
  end
  local ends = math.min(GUARD, tonumber(call('GET', line.key .. ':g') or GUARD))
  if line.now + GUARD_LENGTH < ends then
    ends = line.now + GUARD_LENGTH
    call('SET', line.key .. ':g', int(ends), 'PX', int(GUARD_LENGTH / 500 + SPARE_MS))
  end
  return ends > line.now and ends - line.now or nil
end

-- Lets in whoever the front has room for, and rings them, except the caller, who is told by its answer.
local function settle(line, caller)
  -- Where nothing changed nobody can get in; unless a guard has ended since the last verb.
  if line.waiting == 0 or not (line.changed or GUARD > 0) or guard_rest(line) then
    return
  end
  while line.waiting > 0 do
    local id = call('ZRANGE', line.key .. ':w', 0, 0)[1]
    local h = hold(line, id)
    if not fits(line, h) then
      return
    end
    open_door(line)
    call('ZREM', line.key .. ':w', id)
    line.waiting = line.waiting - 1
    take(line, h)
    for _, one in ipairs(ids_on(line, h, id)) do
      if one ~= caller then ring(line, h, one, 'in') end
    end
  end
end

local function set_deadline(line, id, deadline, lease)
  if line.only == id then
    line.deadline = deadline
    set(line, 'e', int(deadline))
  else
    open_door(line)
    call('ZADD', line.key .. ':d', int(deadline), id)
    if deadline < line.soonest then bound(line, deadline) end
  end
  cover(line, deadline, lease)
end

-- A renewal never shortens.
local function extend(line, id, h, lease)
  if h.fixed then
    return
  end
  if h.lease ~= lease then
    h.lease = lease
    set(line, id, pack(h))
  end
  local deadline = line.now + lease
  if line.only == id then
    set_deadline(line, id, math.max(line.deadline, deadline), lease)
  else
    open_door(line)
    call('ZADD', line.key .. ':d', 'GT', int(deadline), id)
    cover(line, deadline, lease)
  end
end

-- How long until some place before this ticket lapses; -1 if none does within the second (or third of a lease) after
-- which its claim looks again anyway. So only claims that are about to end are read, however long the line is.
local function next_lapse(line, ticket, lease)
  local horizon = line.now + math.min(1000000, lease / 3) + 1
  if line.soonest <= horizon then
    look_for_soonest(line)
  end
  if line.soonest > horizon then
    return -1
  end
  local near = call('ZRANGEBYSCORE', line.key .. ':d', '-inf', int(horizon), 'WITHSCORES')
  local best = -1
  for i = 1, #near, 2 do
    local h = hold(line, near[i])
    local at = tonumber(near[i + 1])
    if best >= 0 and at >= best then
      break
    end
    if h.ticket < ticket then
      -- A place lapses with the last claim on it.
      for _, one in ipairs(h.shared and ids_on(line, h, near[i]) or {}) do
        at = math.max(at, tonumber(call('ZSCORE', line.key .. ':d', one)))
      end
      best = best < 0 and at or math.min(best, at)
    end
  end
  return best < 0 and -1 or math.max(best - line.now, 0)
end

-- Answers: {0} lapsed, {1, ticket} in, {2, ticket, ahead, lease, next lapse, guard rest} waiting, {3} out.
local function standing(line, id, h, ahead)
  if not h then
    return { 0 }
  elseif h.closed then
    return { 3 }
  elseif h.ticket <= line.through then
    return { 1, h.ticket }
  end
  if not ahead then
    ahead = line.n + call('ZRANK', line.key .. ':w', ids_on(line, h, id)[1])
  end
  return { 2, h.ticket, ahead, h.lease, next_lapse(line, h.ticket, h.lease), guard_rest(line) or -1 }
end

-- Writes down what the verb left of the line.
local function close(line)
  if line.n + line.waiting == 0 then
    if line.exists then
      call('DEL', line.key, line.key .. ':d', line.key .. ':w')
    end
    return
  end
  if line.changed then
    set(line, 't', int(line.through))
    set(line, 'n', int(line.n))
    set(line, 'w', int(line.waiting))
    if line.n > 0 then
      set(line, 'k', line.mode)
    end
    if line.counted then
      set(line, 'u', int(line.used))
      set(line, 'l', int(line.limit))
      set(line, 'c', int(line.limited))
    end
  end
  if line.bounded and not line.only then
    set(line, 'm', int(line.soonest))
  end
  set(line, 's', int(line.now))
  local ms = line.stretch and int(math.ceil((line.expires - line.now) / 1000) + 1 + SPARE_MS)
  if line.stretch then
    set(line, 'x', int(line.expires))
    if line.exists then
      call('PEXPIRE', line.key, ms)
      written = true
    end
    if not line.only then
      call('PEXPIRE', line.key .. ':d', ms)
      call('PEXPIRE', line.key .. ':w', ms)
    end
  end
  if line.exists then open_door(line) end
  call('HSET', line.key, unpack(line.set))
  if line.stretch and not line.exists then
    call('PEXPIRE', line.key, ms)
  end
end
