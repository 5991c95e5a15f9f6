-- Lines as people see them.
-- KEYS: the lines, LINES of them. Answers for each {name, last ticket that is in, now, when that got in or -1, claim, deadline, claim,
-- deadline, ...}; an empty list where nobody stands.
local now = clock()
local answers = {}
for i = 1, LINES do
  local key = KEYS[i]
  local line = read(key, '', now, '')
  if line.many then line.name = call('HGET', key, 'N') end
  catch_up(line)
  settle(line, nil)
  close(line)
  local answer = {}
  if line.n + line.waiting > 0 then
    -- A client of an older version may have let somebody in without a word about when.
    local ticket, entered = string.match(line.only and line.claim or '', '^(%d+) %d+ %d (%d+)')
    if not line.only then
      ticket, entered = string.match(call('HGET', key, 'e') or '', '^(%d+) (%d+)$')
    end
    answer = { line.name, line.through, now, tonumber(ticket) == line.through and entered or '-1' }
    local ids = line.only and { line.only, line.deadline } or call('ZRANGE', key .. ':d', 0, -1, 'WITHSCORES')
    for k = 1, #ids, 2 do
      answer[#answer + 1] = line.only and line.claim or call('HGET', key, ids[k])
      answer[#answer + 1] = int(tonumber(ids[k + 1]))
    end
  end
  answers[i] = answer
end
return answers
