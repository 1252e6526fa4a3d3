-- What reserve.lua and upkeep.lua share: the clock, and one rule's state. Put before each of them when it is loaded.
--
-- Everything of one organization carries its hash tag, so that one script reaches all of it on one cluster node:
--   epochs   hash: gateway epoch to the ms its lease ends. An epoch is one run of one gateway process.
--   open     hash: reservation id to {epoch, input, output, micro, {rule names}, day, month it was reserved in}
--   rule     one per rule: its state, below
--   tomb     one per settled id, for a while: a reserve that arrives after its undo takes nothing
--
-- Arithmetic. A per-minute counter holds what is used in units of 1/60000 of a token (of a request): one millisecond
-- gives back exactly `limit` units. Every value is therefore a whole number, and nothing drifts however often it is
-- touched. Lua's numbers are doubles, exact up to 2^53; limits up to 10^9 stay far below. Nothing used is 0, so a refund
-- can never leave more than a full bucket.
--
-- Time is this server's own, read once; callers' clocks never matter. It may be set, and set back, at any moment: what
-- was spent of a day is kept by that day, so that no way back to it resets it; what was spent of a month is counted
-- from the ledger whenever the month changes, in either direction.

local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local now = server_ms()
-- Which run of which server the caller is connected to, always the last argument: after a restart the newest writes may
-- be missing, so what a budget has spent is known only to the run it was counted in.
local incarnation = ARGV[#ARGV]

local MINUTE, DAY = 60000, 86400000
local KEPT_MS = 40 * DAY -- every state carries its own times, so expiry only collects garbage
local DAYS_KEPT = 3 -- beside today: by a clock that is set, a day is reset only after so many others
-- The longest that can be configured. A lease that ends later was written by a clock that was ahead.
local LONGEST_LEASE_MS = 300000

-- A plan's limits, in this order; -1: none. 1 to 4: requests, input, output, tokens per minute.
local CONCURRENCY, DAILY, MONEY = 5, 6, 7

-- A rule's state. Four counters of what is used follow STAMP. HOLDERS: flat list of {epoch, running, day tokens, micro},
-- one group for each epoch that has something open. IDS: during a recount of money, a set of the reservations that
-- count here and are therefore left out of the ledger's sum. SEEDED: the incarnation in which it was counted. DAYS: flat
-- list of {day, tokens spent} of the other days that were today, the one that was so last at the end. LIMITS: of the
-- newest reserve; empty: not known. TOLD: the percentage of a budget that was reported last, and TOLD_OF which budget's.
-- CREATED: when the rule was created, in ms; -1: not known.
local STAMP, TODAY, SPENT_TODAY, MONTH, SPENT_MONTH, SEEDED, ROUND, TOLD, HOLDERS, IDS = 1, 6, 7, 8, 9, 10, 11, 12, 13, 14
local DAYS, LIMITS, TOLD_OF, CREATED = 15, 16, 17, 18

local function divide_up(dividend, divisor)
  local rest = math.fmod(dividend, divisor) -- '%' would divide first and round
  return (dividend - rest) / divisor + (rest > 0 and 1 or 0)
end

-- Months of a day number and back, in the proleptic Gregorian calendar: eras of 400 years, years that begin in March.
local function month_of(day)
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local day_of_era = shifted - era * 146097
  local leaps = math.floor(day_of_era / 1460) - math.floor(day_of_era / 36524) + math.floor(day_of_era / 146096)
  local year = math.floor((day_of_era - leaps) / 365)
  local day_of_year = day_of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local from_march = math.floor((5 * day_of_year + 2) / 153)
  local month = from_march < 10 and from_march + 3 or from_march - 9
  return (year + era * 400 + (month <= 2 and 1 or 0)) * 12 + month - 1
end

local function first_ms(month_number)
  local year, month = math.floor(month_number / 12), math.fmod(month_number, 12) + 1
  if month <= 2 then year = year - 1 end
  local era = math.floor(year / 400)
  local rest = year - era * 400
  local day_of_year = math.floor((153 * (month + (month > 2 and -3 or 9)) + 2) / 5)
  local day_of_era = rest * 365 + math.floor(rest / 4) - math.floor(rest / 100) + day_of_year
  return (era * 146097 + day_of_era - 719468) * DAY
end

local today = math.floor(now / DAY)
local month = month_of(today)

local function read(stored)
  if not stored then return { now, 0, 0, 0, 0, today, 0, month, 0, '', '', 0, {}, {}, {}, {}, -1, -1 } end
  local state = cmsgpack.unpack(stored)
  -- written before there were such fields
  state[DAYS], state[LIMITS], state[TOLD_OF] = state[DAYS] or {}, state[LIMITS] or {}, state[TOLD_OF] or -1
  state[CREATED] = state[CREATED] or -1
  return state
end

local function write(key, state)
  redis.call('SET', key, cmsgpack.pack(state), 'PX', KEPT_MS)
end

local function unseed(state)
  state[SEEDED], state[ROUND], state[IDS] = '', '', {}
end

-- Another day, another month: what was spent is of that day and that month, what is open stays.
local function turn_pages(state)
  if state[TODAY] ~= today then
    local days, spent = state[DAYS], 0
    for at = #days - 1, 1, -2 do
      if days[at] == today then
        spent = table.remove(days, at + 1)
        table.remove(days, at)
      end
    end
    days[#days + 1] = state[TODAY]
    days[#days + 1] = state[SPENT_TODAY]
    while #days > 2 * DAYS_KEPT do table.remove(days, 1) end
    state[TODAY], state[SPENT_TODAY] = today, spent
  end
  if state[MONTH] ~= month then
    state[MONTH], state[SPENT_MONTH], state[TOLD] = month, 0, 0
    unseed(state)
  end
end

-- The newest reserve says what the limits are. A bucket that was lowered is empty at most: what was used of the larger
-- one would keep the smaller one shut for many minutes. A rule that was deleted and created again has not counted the
-- money that was spent meanwhile. Whether they changed.
local function adopt(state, limits, created)
  local known, changed = state[LIMITS], false
  state[LIMITS] = limits
  if created > state[CREATED] then
    local again = state[CREATED] >= 0
    if again then unseed(state) end
    state[CREATED], changed = created, again or state[SEEDED] ~= '' -- refusals store it, too
  end
  if not known[1] then return changed end
  for counter = 1, 4 do
    if limits[counter] >= 0 and limits[counter] < known[counter] then
      state[STAMP + counter] = math.min(state[STAMP + counter], limits[counter] * MINUTE)
    end
  end
  for counter = 1, MONEY do changed = changed or limits[counter] ~= known[counter] end
  return changed
end

-- Which share of a budget was reported. Of a raised one those shares are reported that are reached from now on; of a
-- lowered one those, too, that are reached by being lowered.
local function align_told(state, budget, percents)
  if budget > state[TOLD_OF] then
    local passed = 0
    for _, percent in ipairs(percents) do
      if state[SPENT_MONTH] * 100 >= percent * budget then passed = percent end
    end
    state[TOLD] = math.min(state[TOLD], passed)
  end
  state[TOLD_OF] = budget
end

local function refill(state, limits)
  local elapsed = math.max(0, now - state[STAMP])
  for counter = 1, 4 do
    local used = state[STAMP + counter]
    if used > 0 then
      used = limits[counter] < 0 and 0 or used - elapsed * limits[counter]
      state[STAMP + counter] = used > 0 and used or 0
    end
  end
  state[STAMP] = now
  turn_pages(state)
end

-- What epochs have open in a rule: requests running and tokens of the day for living ones, money for all of them.
local function open_in(state, living)
  local running, tokens, micro = 0, 0, 0
  local holders = state[HOLDERS]
  for at = 1, #holders, 4 do
    if living[holders[at]] then
      running, tokens = running + holders[at + 1], tokens + holders[at + 2]
    end
    micro = micro + holders[at + 3]
  end
  return running, tokens, micro
end

local function hold(state, epoch, running, tokens, micro)
  local holders = state[HOLDERS]
  local at = 1
  while holders[at] and holders[at] ~= epoch do at = at + 4 end
  if not holders[at] then holders[at], holders[at + 1], holders[at + 2], holders[at + 3] = epoch, 0, 0, 0 end
  holders[at + 1] = math.max(0, holders[at + 1] + running)
  holders[at + 2] = math.max(0, holders[at + 2] + tokens)
  holders[at + 3] = math.max(0, holders[at + 3] + micro)
  if holders[at + 1] == 0 and holders[at + 2] == 0 and holders[at + 3] == 0 then
    for _ = 1, 4 do table.remove(holders, at) end
  end
end

-- During a recount of money: this reservation counts here, so the ledger's sum must leave it out.
local function mark(state, id)
  if state[SEEDED] ~= incarnation and state[ROUND] ~= '' then state[IDS][id] = 1 end
end

-- What was used belongs to the day and the month of the reserve, as in the ledger. A month that lies ahead was one of a
-- clock that was set back since: that money is of this month.
local function charge(state, record, id, tokens, micro)
  local days = state[DAYS]
  if record[6] == state[TODAY] then state[SPENT_TODAY] = state[SPENT_TODAY] + tokens end
  for at = 1, #days, 2 do
    if days[at] == record[6] then days[at + 1] = days[at + 1] + tokens end
  end
  if record[7] >= state[MONTH] then
    state[SPENT_MONTH] = state[SPENT_MONTH] + micro
    mark(state, id)
  end
end

local function keep_alive(epochs, epoch, lease_ms)
  redis.call('HSET', epochs, epoch, string.format('%.0f', now + lease_ms))
end

local function buried(tomb)
  local until_ms = redis.call('GET', tomb)
  return until_ms and tonumber(until_ms) > now
end

local function bury(tomb, for_ms)
  redis.call('SET', tomb, string.format('%.0f', now + for_ms), 'PX', for_ms)
end
