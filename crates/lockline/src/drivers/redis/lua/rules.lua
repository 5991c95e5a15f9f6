-- The rule of who is in, and what time does to a line.

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
  line.changed, line.entered = true, true
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

-- Takes a claim off its place, and the place out of the line when nobody is left on it.
local function remove(line, id, h)
  if line.only == id then
    line.only, line.n, line.mode = false, 0, false
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
    line.deadline = math.min(line.deadline, line.now + hold(line, line.only).lease)
  else
    local all = call('ZRANGE', line.key .. ':d', 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local h = hold(line, all[i])
      local deadline = math.min(tonumber(all[i + 1]), line.now + h.lease)
      call('ZADD', line.key .. ':d', int(deadline), all[i])
      last, most = math.max(last, deadline), math.max(most, h.lease)
    end
    look_for_soonest(line)
    line.expires = 0
    cover(line, last, most)
  end
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
    if line.many then
      call('DEL', line.key, line.key .. ':d', line.key .. ':w')
      written = true
    end
    open_door(line)
    set_root(line, int(line.last))
    line.exists, line.many, line.raw, line.changed, line.bounded, line.set = false, false, false, false, false, {}
    line.expires, line.stretch, line.mode, line.counted, line.ahead = 0, false, false, false, false
  end
end

-- What is left of the restart guard; nil if there is none. A clock that stepped back behind its beginning shortens it,
-- line by line, so that it never lasts longer than it was meant to. That is kept until the clock has passed the guard:
-- forgotten sooner, the guard would begin again, and again.
local function guard_rest(line)
  if line.now >= GUARD then
    return nil
  end
  local ends = math.min(GUARD, tonumber(call('GET', line.key .. ':g') or GUARD))
  if line.now + GUARD_LENGTH < ends then
    ends = line.now + GUARD_LENGTH
    call('SET', line.key .. ':g', int(ends), 'PX', int(math.ceil((GUARD - line.now) / 1000) + SPARE_MS))
  end
  return ends > line.now and ends - line.now or nil
end

-- Lets in whoever the front has room for, and rings them, except the caller, who is told by its answer.
local function settle(line, caller)
  -- Behind one who is in alone nobody gets in. All others are looked at, even if nothing has changed: the last verb may have kept
  -- them out for a guard of which this script was never told, because it had ended when its client came.
  if line.waiting == 0 or line.n > 0 and line.mode == 'x' or guard_rest(line) then
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

-- A renewal never shortens.
local function extend(line, id, h, lease)
  if h.fixed then
    return
  end
  if h.lease ~= lease then
    h.lease = lease
    store(line, id, h)
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

-- Answers: {0} lapsed, the ticket alone: in, {2, ticket, ahead, lease, next lapse, guard rest} waiting, {3} out.
local function standing(line, id, h, ahead)
  if not h then
    return { 0 }
  elseif h.closed then
    return { 3 }
  elseif h.ticket <= line.through then
    return h.ticket
  end
  if not ahead then
    ahead = line.n + call('ZRANK', line.key .. ':w', ids_on(line, h, id)[1])
  end
  return { 2, h.ticket, ahead, h.lease, next_lapse(line, h.ticket, h.lease), guard_rest(line) or -1 }
end

