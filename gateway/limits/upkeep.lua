-- What keeps the counters true: heartbeats, announcements, and recounts of money. The last argument of every verb is
-- the incarnation (state.lua).
--
-- beat      KEYS epochs                          ARGV epoch, lease_ms
--           Extends the epoch's lease. {1}, or {0} when it is not known here: data was lost, announce everything.
-- announce  KEYS epochs, open, rules …, tomb     ARGV epoch, plan, id, input, output, micro
--           Counts an open reservation in every rule of the plan that does not count it yet; rates are not taken again.
--           {1}, or {0} when it was settled.
-- begin     KEYS rule                            ARGV token
--           Begins a recount of its money, unless it is counted: {1, first ms of the month, month}, or {0}.
-- ids       KEYS rule                            ARGV token
--           The reservations to leave out of the ledger's sum: {1, id …}, or {0} when this count is over.
-- seed      KEYS rule                            ARGV token, micro, number of ids left out, month
--           Adds the ledger's sum: {1}; {2} when the ids or the month changed since; {0} when this count is over.
-- unseed    KEYS rules …
--           The money spent is in doubt.
-- told      KEYS rule                            ARGV percent, month, budget
--           The threshold was passed on; it is not reported again this month, unless the budget changes.
-- retire    KEYS epochs, open, rules …, tomb     ARGV id, tomb_ms
--           Ends a reservation that no gateway has any more. {1}, or {0} when it is not open. What it cost is in the
--           ledger, if anything: the money of its rules is recounted.
-- forget    KEYS epochs                          ARGV epoch
--           A dead epoch that has nothing open any more.

local verb = ARGV[1]

if verb == 'beat' then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return { 0 } end
  keep_alive(KEYS[1], ARGV[2], tonumber(ARGV[3]))
  return { 1 }
end

if verb == 'announce' then
  local epoch, plan, id = ARGV[2], cmsgpack.unpack(ARGV[3]), ARGV[4]
  local input, output, micro = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  local rules = plan[4]
  if buried(KEYS[#KEYS]) then return { 0 } end
  local stored = redis.call('HGET', KEYS[2], id)
  local record = stored and cmsgpack.unpack(stored) or { epoch, input, output, micro, {}, today, month }
  local counted = {}
  for _, name in ipairs(record[5]) do counted[name] = true end
  for i = 1, #rules do
    local state = read(redis.call('GET', KEYS[2 + i]))
    turn_pages(state)
    if not counted[rules[i][1]] then
      hold(state, record[1], 1, record[2] + record[3], record[4])
      record[5][#record[5] + 1] = rules[i][1]
    end
    mark(state, id)
    write(KEYS[2 + i], state)
  end
  redis.call('HSET', KEYS[2], id, cmsgpack.pack(record))
  keep_alive(KEYS[1], epoch, plan[1])
  return { 1 }
end

if verb == 'retire' then
  local id = ARGV[2]
  local stored = redis.call('HGET', KEYS[2], id)
  if not stored then return { 0 } end
  local record = cmsgpack.unpack(stored)
  for i = 3, #KEYS - 1 do
    local state = read(redis.call('GET', KEYS[i]))
    turn_pages(state)
    hold(state, record[1], -1, -(record[2] + record[3]), -record[4])
    if record[4] > 0 then unseed(state) end
    write(KEYS[i], state)
  end
  redis.call('HDEL', KEYS[2], id)
  bury(KEYS[#KEYS], tonumber(ARGV[3]))
  return { 1 }
end

if verb == 'forget' then return { redis.call('HDEL', KEYS[1], ARGV[2]) } end

if verb == 'unseed' then
  for i = 1, #KEYS do
    local state = read(redis.call('GET', KEYS[i]))
    turn_pages(state)
    unseed(state)
    write(KEYS[i], state)
  end
  return { 1 }
end

local state = read(redis.call('GET', KEYS[1]))
turn_pages(state)

if verb == 'begin' then
  if state[SEEDED] == incarnation then return { 0 } end
  state[SPENT_MONTH], state[ROUND], state[IDS] = 0, ARGV[2], {}
  write(KEYS[1], state)
  return { 1, first_ms(state[MONTH]), state[MONTH] }
end

if verb == 'ids' then
  if state[SEEDED] == incarnation or state[ROUND] ~= ARGV[2] then return { 0 } end
  local answer = { 1 }
  for id in pairs(state[IDS]) do answer[#answer + 1] = id end
  return answer
end

if verb == 'seed' then
  if state[SEEDED] == incarnation or state[ROUND] ~= ARGV[2] then return { 0 } end
  local ids = 0
  for _ in pairs(state[IDS]) do ids = ids + 1 end
  if ids ~= tonumber(ARGV[4]) or state[MONTH] ~= tonumber(ARGV[5]) then return { 2 } end
  state[SPENT_MONTH] = state[SPENT_MONTH] + tonumber(ARGV[3])
  state[SEEDED], state[ROUND], state[IDS] = incarnation, '', {}
  write(KEYS[1], state)
  return { 1 }
end

if verb == 'told' then
  local same = state[MONTH] == tonumber(ARGV[3]) and state[TOLD_OF] == tonumber(ARGV[4])
  if same and state[TOLD] < tonumber(ARGV[2]) then
    state[TOLD] = tonumber(ARGV[2])
    write(KEYS[1], state)
  end
  return { 1 }
end

return redis.error_reply('unknown verb')
