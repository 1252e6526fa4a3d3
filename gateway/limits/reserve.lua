-- Reserves and settles over all rules of a request at once: in all of them, or in none.
--
-- KEYS  1 epochs   2 open   then one state per rule   last: tomb of the id
-- ARGV  1 verb: reserve | settle | look   2 epoch   3 plan, msgpack: {lease_ms, tomb_ms, {percent …}, {rule …}},
--          each rule {name, limits, created_ms}
--       4 id   5 requests   6 input tokens   7 output tokens   8 micro (reserve: what to take; settle: what was used)
--       9 incarnation

local ADMITTED, REFUSED, SETTLED, UNSEEDED = 0, 1, 3, 4
-- When a running request ends is unknown; this is the retry delay for the client.
local RUNNING_WAIT_MS = 1000

local verb, epoch, id = ARGV[1], ARGV[2], ARGV[4]
local plan = cmsgpack.unpack(ARGV[3])
local lease_ms, tomb_ms, percents, rules = plan[1], plan[2], plan[3], plan[4]
local requests, input, output, micro = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local amounts = { requests, input, output, input + output }
local count = #rules
local tomb = KEYS[count + 3]

-- settling: by the limits of the newest reserve, not by those that the request began under.
local function states(settling)
  local stored, all = redis.call('MGET', unpack(KEYS, 3, count + 2)), {}
  for i = 1, count do
    local state = read(stored[i])
    local ahead = state[STAMP] > now -- clock set back
    local changed = not (settling and state[LIMITS][1]) and adopt(state, rules[i][2], rules[i][3] or 0)
    refill(state, state[LIMITS])
    if ahead or changed then write(KEYS[2 + i], state) end -- refusals alone would never write it
    all[i] = state
  end
  return all
end

-- Answers {status, rule that decided (0: none), its counter, ms until this request would pass, server's ms, then per rule
-- what is left of its seven counters (units for the first four; requests running for the fifth)}. Of several that
-- refuse, the one that frees last is named.
local function reserve(take)
  local all, living, own_ends = states(false), {}, 0
  local leases = redis.call('HGETALL', KEYS[1])
  for i = 1, #leases, 2 do
    local ends = tonumber(leases[i + 1])
    living[leases[i]] = ends > now and ends - now <= LONGEST_LEASE_MS
    if leases[i] == epoch then own_ends = ends end
  end
  living[epoch] = true
  local refused, refused_counter, wait_ms, unseeded = 0, 0, 0, 0
  local left, at = {}, 0
  local function blocked(rule, counter, for_ms)
    if for_ms > wait_ms then refused, refused_counter, wait_ms = rule, counter, for_ms end
  end
  for i = 1, count do
    local state, limits = all[i], rules[i][2]
    local running, open_tokens, open_micro = open_in(state, living)
    for counter = 1, 4 do
      local limit = limits[counter]
      local units = limit < 0 and 0 or limit * MINUTE - state[STAMP + counter]
      if limit >= 0 and amounts[counter] * MINUTE > units then
        blocked(i, counter, divide_up(amounts[counter] * MINUTE - units, limit))
      end
      left[at + counter] = units
    end
    left[at + CONCURRENCY] = running
    if limits[CONCURRENCY] >= 0 and running + requests > limits[CONCURRENCY] then
      blocked(i, CONCURRENCY, RUNNING_WAIT_MS)
    end
    -- What is open may come back any moment; what is spent, only with the next day or month.
    local tokens, unspent = amounts[4], limits[DAILY] - state[SPENT_TODAY]
    left[at + DAILY] = limits[DAILY] < 0 and 0 or unspent - open_tokens
    if limits[DAILY] >= 0 and tokens > 0 and tokens > unspent - open_tokens then
      blocked(i, DAILY, tokens > unspent and (state[TODAY] + 1) * DAY - now or RUNNING_WAIT_MS)
    end
    local unspent_micro = limits[MONEY] - state[SPENT_MONTH]
    left[at + MONEY] = limits[MONEY] < 0 and 0 or unspent_micro - open_micro
    if limits[MONEY] >= 0 and micro > 0 then
      if state[SEEDED] ~= incarnation then
        if unseeded == 0 then unseeded = i end
      elseif micro > unspent_micro - open_micro then
        blocked(i, MONEY, micro > unspent_micro and first_ms(state[MONTH] + 1) - now or RUNNING_WAIT_MS)
      end
    end
    at = at + 7
  end
  if not take or redis.call('HEXISTS', KEYS[2], id) == 1 then return { ADMITTED, 0, 0, 0, now, unpack(left) } end
  if buried(tomb) then return { SETTLED, 0, 0, 0, now, unpack(left) } end
  if unseeded > 0 then return { UNSEEDED, unseeded, MONEY, 0, now, unpack(left) } end
  if refused > 0 then return { REFUSED, refused, refused_counter, wait_ms, now, unpack(left) } end
  local names = {}
  at = 0
  for i = 1, count do
    local state, limits = all[i], rules[i][2]
    for counter = 1, 4 do
      if limits[counter] >= 0 then
        local units = amounts[counter] * MINUTE
        state[STAMP + counter] = state[STAMP + counter] + units
        left[at + counter] = left[at + counter] - units
      end
    end
    hold(state, epoch, requests, amounts[4], micro)
    left[at + CONCURRENCY] = left[at + CONCURRENCY] + requests
    if limits[DAILY] >= 0 then left[at + DAILY] = left[at + DAILY] - amounts[4] end
    if limits[MONEY] >= 0 then left[at + MONEY] = left[at + MONEY] - micro end
    write(KEYS[2 + i], state)
    names[i] = rules[i][1]
    at = at + 7
  end
  redis.call('HSET', KEYS[2], id, cmsgpack.pack({ epoch, input, output, micro, names, today, month }))
  if own_ends - now < lease_ms * 2 / 3 then keep_alive(KEYS[1], epoch, lease_ms) end
  return { ADMITTED, 0, 0, 0, now, unpack(left) }
end

-- Gives back what was reserved and not used, takes what was used and not reserved, once. Answers {0} when the id is not
-- open, else {1}, followed by {rule, percent, spent, month, budget, told} for the highest share of a budget that was
-- reached and that nobody has acknowledged yet; told: the highest that somebody has.
local function settle()
  local stored = redis.call('HGET', KEYS[2], id)
  bury(tomb, tomb_ms)
  if not stored then return { 0 } end
  local record, answer = cmsgpack.unpack(stored), { 1 }
  local reserved = { 1, record[2], record[3], record[2] + record[3] }
  local counted = {}
  for _, name in ipairs(record[5]) do counted[name] = true end
  local all = states(true)
  for i = 1, count do
    if counted[rules[i][1]] then
      local state, limits = all[i], rules[i][2]
      local budget = state[LIMITS][MONEY]
      local known = budget > 0 and state[SEEDED] == incarnation
      for counter = 1, 4 do
        if limits[counter] >= 0 then
          local units = state[STAMP + counter] + (amounts[counter] - reserved[counter]) * MINUTE
          state[STAMP + counter] = math.max(0, units)
        end
      end
      hold(state, record[1], -1, -reserved[4], -record[4])
      if known then align_told(state, budget, percents) end
      charge(state, record, id, amounts[4], micro)
      if known then
        local reached = 0
        for _, percent in ipairs(percents) do
          if percent > state[TOLD] and state[SPENT_MONTH] * 100 >= percent * budget then reached = percent end
        end
        if reached > 0 then
          local size = #answer
          answer[size + 1], answer[size + 2], answer[size + 3] = i, reached, state[SPENT_MONTH]
          answer[size + 4], answer[size + 5], answer[size + 6] = state[MONTH], budget, state[TOLD]
        end
      end
      write(KEYS[2 + i], state)
    end
  end
  redis.call('HDEL', KEYS[2], id)
  return answer
end

if verb == 'reserve' then return reserve(true) end
if verb == 'settle' then return settle() end
return reserve(false)
