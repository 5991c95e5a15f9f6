-- The common case first, before anything else is even defined (Lua makes every function below anew with each call): a
-- lock that nobody stands at, asked for by an owner of one process. It does what the rest would do, with four calls.
-- KEYS and ARGV as in join.lua.
if ARGV[8] == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  local key, id, mode, now = KEYS[1], ARGV[1], ARGV[5], clock()
  if now >= GUARD and (mode ~= 'p' or tonumber(ARGV[6]) <= tonumber(ARGV[7])) then
    local lease = tonumber(ARGV[2])
    local at, ends = string.format('%.0f', now), string.format('%.0f', now + lease)
    local ticket = now
    local last = redis.call('SET', key .. ':c', at, 'PX', '86400000', 'GET')
    if last and tonumber(last) >= now then
      ticket = tonumber(last) + 1
      redis.call('SET', key .. ':c', string.format('%.0f', ticket), 'PX', '86400000')
    end
    local through = string.format('%.0f', ticket)
    local claim = through .. ' ' .. ARGV[2] .. ' 0 ' .. at .. ' ' .. ARGV[9]
    if mode == 'p' then
      redis.call('HSET', key, 's', at, 't', through, 'k', mode, 'n', '1', 'w', '0', 'o', id, 'e', ends, 'x', ends,
        'N', ARGV[4], id, claim, 'u', ARGV[6], 'l', ARGV[7], 'c', '1')
    else
      redis.call('HSET', key, 's', at, 't', through, 'k', mode, 'n', '1', 'w', '0', 'o', id, 'e', ends, 'x', ends,
        'N', ARGV[4], id, claim)
    end
    redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(lease / 1000) + 1 + SPARE_MS))
    return { 1, ticket }
  end
end

