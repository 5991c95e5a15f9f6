-- What every verb shares: a line, and how it is stored. What the verbs do must agree, step by step, with `Line` in
-- line/line.rs; generated histories are run on both.
--
-- Before this text stand `GUARD` and `GUARD_LENGTH` (until when nobody becomes in, and how long that is; 0 if there is
-- no restart guard), `BELL` (what the channels of processes begin with), `clock` (the present in microseconds),
-- `SPARE_MS` (how much longer than their claims keys live; only tests have some), `ROOT_MS` (how long KEY:c lives) and `LINES`
-- (how many of KEYS are lines).
--
-- A line is one string, and up to three more keys under the same hash tag while several claims stand in it:
--   KEY:c    string: what outlives the line, and the line itself while a single claim stands in it, is in, and has no
--            identity, so that a lock that nobody waits for costs one short string:
--              TICKET                 nobody; the last ticket
--              +TICKET                several: see KEY; the last ticket, or one that is still to come
--              *TICKET CLAIM          one that came at TICKET, on the clock, and nothing has happened since
--              =TICKET DEADLINE SEEN SINCE FLAGS CLAIM
--              ~TICKET                lent, with all tickets up to this one: see KEY:l:TICKET
--            where CLAIM is what the client sends: ID LEASE LENGTH NAME TAIL
--   KEY      hash:  s  when a verb last saw it           t  places up to this ticket are in
--                   k n u l c  the front, see `take`     w  how many places wait
--                   x  until when the keys live          m  no claim lapses before
--                   N  the lock's name
--                   z r  the last ticket, and the root's, where that is still to come
--                   e  "ticket when": when the place that t names got in; only people are told
--                   ID  a claim: "ticket lease flags since mode count limit shared process ..." (see `parse`)
--                   i:IDENTITY  the ticket of its place  p:TICKET  the ids on a place of an identity
--   KEY:l:TICKET  string: the loan of a line to one client, which writes its claim there, as TICKET SINCE CLAIM, for as long as
--            its lease, and nothing when it leaves; without a script, and only while the key is there. SINCE is 0 but in tests.
--   KEY:d    sorted set: deadline of each claim
--   KEY:w    sorted set: ticket of each waiting place, by the first id that stands on it
--   KEY:m    nothing, ever. On a cluster the last of KEYS: while a slot is moved, its node runs no script that names a key it
--            does not have, so that no script meets a line of which a part is elsewhere. See cluster.rs.

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

-- What of a claim does not change while it stands there.
local function claim_of(tail)
  local mode, count, limit, shared, process, rest = string.match(tail, '^(%a) (%d+) (%d+) (%d) (%x+) (.*)$')
  return {
    mode = mode, count = tonumber(count), limit = tonumber(limit),
    shared = shared == '1', process = process, tail = tail, rest = rest,
  }
end

-- Flags: 1 the deadline of a fixed lease was set, nothing moves it; 2 closed: evicted while in.
local function parse(raw)
  local ticket, lease, flags, since, tail = string.match(raw, '^(%d+) (%d+) (%d) (%d+) (.*)$')
  local h = claim_of(tail)
  flags = tonumber(flags)
  h.ticket, h.lease, h.since = tonumber(ticket), tonumber(lease), since
  h.fixed, h.closed = flags % 2 == 1, flags >= 2
  return h
end

local function flags_of(h)
  return (h.fixed and 1 or 0) + (h.closed and 2 or 0)
end

local function pack(h)
  return int(h.ticket) .. ' ' .. int(h.lease) .. ' ' .. flags_of(h) .. ' ' .. h.since .. ' ' .. h.tail
end

local function hold(line, id)
  local raw
  if line.only then
    raw = line.only == id and line.claim
  else
    raw = call('HGET', line.key, id)
  end
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

-- A claim as its client sends it: its id, lease, the lock's name, and the rest.
local function take_apart(claim)
  local id, lease, length, rest = string.match(claim, '^(%x+) (%d+) (%d+) (.*)$')
  return id, lease, string.sub(rest, 1, length), string.sub(rest, length + 2)
end

local function read_only_claim(line)
  local ticket, deadline, seen, since, flags, claim
  if string.byte(line.root) == 42 then
    ticket, claim = string.match(line.root, '^%*(%d+) (.*)$')
    seen, since, flags = ticket, ticket, '0'
  else
    ticket, deadline, seen, since, flags, claim = string.match(line.root, '^=(%d+) (%d+) (%d+) (%d+) (%d) (.*)$')
  end
  local id, lease, name, tail = take_apart(claim)
  deadline = deadline or ticket + lease
  line.name = name
  line.claim = ticket .. ' ' .. lease .. ' ' .. flags .. ' ' .. since .. ' ' .. tail
  line.exists, line.only, line.deadline, line.seen = true, id, tonumber(deadline), tonumber(seen)
  line.raw = id == line.id and line.claim
  local h = parse(line.claim)
  line.n, line.mode, line.through = 1, h.mode, h.ticket
  if h.mode == 'p' then
    line.used, line.limit, line.limited = h.count, h.limit, 1
  end
end

local function read_many(line)
  local v = call('HMGET', line.key, 's', 't', 'k', 'n', 'u', 'l', 'c', 'w', 'x', 'm', line.id, 'z', 'r')
  if not v[1] then
    -- The keys of one line end together; one that was made anew may have been left without an end.
    call('DEL', line.key .. ':d', line.key .. ':w')
    return
  end
  line.exists, line.many = true, true
  line.seen, line.through, line.mode = tonumber(v[1]), tonumber(v[2]), v[3]
  line.n, line.used, line.limit = tonumber(v[4]), tonumber(v[5] or 0), tonumber(v[6] or 0)
  line.limited, line.waiting = tonumber(v[7] or 0), tonumber(v[8])
  line.expires, line.soonest, line.raw = tonumber(v[9] or 0), tonumber(v[10] or 0), v[11]
  if v[12] then
    line.last, line.ahead = tonumber(v[12]), tonumber(v[13])
  end
end

-- Queues a field for the one HSET that `close` sends.
local function set(line, field, value)
  local s = line.set
  s[#s + 1] = field
  s[#s + 1] = value
end

local function store(line, id, h)
  if line.only == id then
    line.claim = pack(h)
  else
    set(line, id, pack(h))
  end
end

-- Writes what outlives the line.
local function write_root(line, root)
  call('SET', line.key .. ':c', root, 'PX', ROOT_MS)
  line.root, written = root, true
end

local function set_root(line, root)
  if root ~= line.root then
    write_root(line, root)
  end
end

-- Where joins come fast, the root knows a ticket that is still to come: see join_fast.lua.
local function root_of_many(line)
  if line.ahead then
    line.ahead = math.max(line.ahead, line.last)
    set(line, 'z', int(line.last))
    set(line, 'r', int(line.ahead))
  end
  return '+' .. int(line.ahead or line.last)
end

local function only_claim(line)
  local h = parse(line.claim)
  return '=' .. int(line.last) .. ' ' .. int(line.deadline) .. ' ' .. int(line.now) .. ' ' .. h.since .. ' ' .. flags_of(h)
    .. ' ' .. line.only .. ' ' .. int(h.lease) .. ' ' .. #line.name .. ' ' .. line.name .. ' ' .. h.tail
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

-- Keys live until the last claim on them ends, and little longer: a claim further back would else move the end of all
-- keys with every join.
local function cover(line, deadline, lease)
  if not line.only and deadline > line.expires then
    line.expires = deadline + math.min(lease / 10, 100000)
    line.stretch = true
  end
end

-- From one claim to many: it moves to the hash, and its deadline to the sorted set.
local function spread(line)
  if line.only then
    local ticket, since = string.match(line.claim, '^(%d+) %d+ %d (%d+)')
    call('HSET', line.key, 'N', line.name, line.only, line.claim, 'e', ticket .. ' ' .. since)
    call('ZADD', line.key .. ':d', int(line.deadline), line.only)
    written = true
    bound(line, line.deadline)
    line.only, line.many, line.changed, line.counted = false, true, true, line.mode == 'p'
    cover(line, line.deadline, 0)
  end
end

-- A lent line comes back with whoever comes: what its borrower sends from now on does nothing. One who stands in it
-- goes on standing there.
local function take_back(line)
  local loan = line.key .. ':l:' .. int(line.last)
  local held = call('GET', loan)
  local rest = held and call('PTTL', loan)
  call('DEL', loan)
  written = true
  if not held or held == '' then
    line.root = int(line.last)
    call('SET', line.key .. ':c', line.root, 'KEEPTTL')
    return
  end
  local ticket, since, claim = string.match(held, '^(%d+) (%d+) (.*)$')
  local id, lease, name, tail = take_apart(claim)
  -- A clock that stepped back lets the key live for longer than a lease.
  since = since ~= '0' and tonumber(since) or line.now + math.min(rest * 1000 - lease, 0)
  line.name, line.exists, line.only, line.deadline, line.seen = name, true, id, since + lease, since
  line.claim = ticket .. ' ' .. lease .. ' 0 ' .. int(since) .. ' ' .. tail
  line.raw = id == line.id and line.claim
  line.n, line.mode, line.through = 1, 'x', tonumber(ticket)
  -- As one of many, because its ticket is not the last one.
  spread(line)
end

-- Reads a line, and the claim with this id along with it. `many`: it has a hash.
local function read(key, name, now, id)
  local root = call('GET', key .. ':c')
  local kind, last = string.match(root or '0', '^([=+*~]?)(%d+)')
  local line = {
    key = key, name = name, now = now, id = id, root = root, last = tonumber(last), set = {}, exists = false,
    seen = 0, through = 0, n = 0, used = 0, limit = 0, limited = 0, waiting = 0, deadline = 0, expires = 0, soonest = 0,
  }
  if kind == '=' or kind == '*' then
    read_only_claim(line)
  elseif kind == '+' then
    read_many(line)
  elseif kind == '~' then
    take_back(line)
  end
  return line
end

local function set_deadline(line, id, deadline, lease)
  if line.only == id then
    line.deadline = deadline
  else
    open_door(line)
    call('ZADD', line.key .. ':d', int(deadline), id)
    if deadline < line.soonest then bound(line, deadline) end
  end
  cover(line, deadline, lease)
end

local function ring(line, h, id, news)
  call('PUBLISH', BELL .. h.process, int(h.ticket) .. ' ' .. id .. ' ' .. news .. ' ' .. line.name)
end

local function write_front(line)
  set(line, 't', int(line.through))
  set(line, 'n', int(line.n))
  set(line, 'w', int(line.waiting))
  if line.entered then
    set(line, 'e', int(line.through) .. ' ' .. int(line.now))
  end
  if line.n > 0 then
    set(line, 'k', line.mode)
  end
  if line.counted then
    set(line, 'u', int(line.used))
    set(line, 'l', int(line.limit))
    set(line, 'c', int(line.limited))
  end
end

local function write_many(line)
  if line.changed then
    write_front(line)
  end
  if line.bounded then
    set(line, 'm', int(line.soonest))
  end
  set(line, 's', int(line.now))
  -- The same moment for all of them: of a line whose deadlines end a millisecond sooner nobody would ever lapse.
  local at = line.stretch and int(math.ceil(line.expires / 1000) + 1 + SPARE_MS)
  if line.stretch then
    set(line, 'x', int(line.expires))
    call('PEXPIREAT', line.key .. ':d', at)
    call('PEXPIREAT', line.key .. ':w', at)
    written = true
  end
  open_door(line)
  call('HSET', line.key, unpack(line.set))
  if line.stretch then
    call('PEXPIREAT', line.key, at)
  end
end

-- Writes down what the verb left of the line. A new claim must not open the door to a server without memory: with a
-- root that is written first, it is refused, and nothing has happened.
local function close(line)
  if line.n + line.waiting == 0 then
    if line.many then
      call('DEL', line.key, line.key .. ':d', line.key .. ':w')
      written = true
    end
    if line.exists then
      open_door(line)
      set_root(line, int(line.last))
    end
  elseif line.only then
    if line.exists then open_door(line) end
    set_root(line, only_claim(line))
  else
    if line.exists then open_door(line) end
    set_root(line, root_of_many(line))
    write_many(line)
  end
end
