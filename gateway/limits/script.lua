-- Reserves, settles and renews over any number of buckets at once: all of them or none.
--
-- KEYS  one per bucket, then one record per reservation. All carry one hash tag, so they live on one cluster node.
-- ARGV  1 verb: reserve | settle | renew    2 lease_ms    3 record_ms    4 number of buckets
--       then for each bucket: kind (rate | concurrency), limit, period_ms; then for each bucket: amount (reserve: what
--       to take; settle: what was really used; renew: ignored); then one id per reservation.
--
-- Arithmetic. A rate bucket counts in units of 1/period_ms of a token (of a request): one millisecond refills exactly
-- `limit` units and a full bucket holds limit * period_ms. Every value is therefore a whole number, and nothing drifts
-- however often a bucket is touched. Lua's numbers are doubles, exact up to 2^53: for one minute that allows limits up
-- to 1.5e11. Numbers are written with '%.0f', because tostring() keeps only 14 digits.
--
-- Time is this server's own, read once; callers' clocks never matter. A clock set back refills nothing and loses
-- nothing: the bucket is stamped with the earlier time, and the stretch is refilled when it is lived through again.
--
-- Stored:  rate bucket   "<units> <ms>": what was left at that time, below zero when more was used than reserved.
--                        A full bucket is not stored at all.
--          concurrency   sorted set of reservation ids by the time their lease ends
--          record        "<ms it is forgotten> <amount per bucket>"; a settled one has no amounts. It makes the second
--                        reserve and the second settle of an id harmless, and a reserve that arrives after it was undone.
-- Every value carries its own time, so expiry only collects garbage: hence slack_ms, which changes no answer.

local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local now, slack_ms = server_ms(), 1000

local ADMITTED, REFUSED, TOO_EXPENSIVE, SETTLED = 0, 1, 2, 3
-- When a running request ends is unknown; this is what the client is told to wait.
local CONCURRENCY_WAIT_MS = 1000

local verb, lease_ms, record_ms, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local kinds, limits, periods, amounts = {}, {}, {}, {}
for i = 1, count do
  local at = 3 * i + 1
  kinds[i], limits[i], periods[i] = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  amounts[i] = tonumber(ARGV[4 + 3 * count + i])
end
local first_id = 4 * count + 4

local function divide_up(dividend, divisor)
  local rest = math.fmod(dividend, divisor) -- '%' would divide first and round
  return (dividend - rest) / divisor + (rest > 0 and 1 or 0)
end

local function store_units(i, units)
  local missing = limits[i] * periods[i] - units
  if missing <= 0 then
    redis.call('DEL', KEYS[i]) -- full; a refund beyond that is lost
  else
    local expiry_ms = divide_up(missing, limits[i]) + slack_ms
    redis.call('SET', KEYS[i], string.format('%.0f %.0f', units, now), 'PX', string.format('%.0f', expiry_ms))
  end
end

local function units_left(i)
  local capacity = limits[i] * periods[i]
  local stored = redis.call('GET', KEYS[i])
  if not stored then return capacity end
  local units, time = string.match(stored, '^(%S+) (%S+)$')
  units, time = tonumber(units), tonumber(time)
  if time > now then store_units(i, units) end -- clock set back: refusals alone would never stamp it
  return math.min(capacity, units + math.max(0, now - time) * limits[i])
end

local function running(i)
  return redis.call('ZCOUNT', KEYS[i], string.format('(%.0f', now), '+inf')
end

local function lease(i, id)
  redis.call('ZADD', KEYS[i], string.format('%.0f', now + lease_ms), id)
  redis.call('PEXPIRE', KEYS[i], string.format('%.0f', record_ms + slack_ms))
end

-- The amounts reserved under the j-th id; an empty list when it is settled; nil when nothing is known of it.
local function recall(j)
  local stored = redis.call('GET', KEYS[count + j])
  if not stored then return nil end
  local numbers = {}
  for number in string.gmatch(stored, '%S+') do numbers[#numbers + 1] = tonumber(number) end
  if table.remove(numbers, 1) <= now then return nil end
  return numbers
end

local function remember(j, reserved, for_ms)
  local words = { string.format('%.0f', now + for_ms) }
  for i = 1, #reserved do words[i + 1] = string.format('%.0f', reserved[i]) end
  redis.call('SET', KEYS[count + j], table.concat(words, ' '), 'PX', string.format('%.0f', for_ms + slack_ms))
end

-- Answers {status, number of the bucket that decided (0: none), ms until this request would pass, then per bucket the
-- units left or the requests running}. The bucket that frees last is the one named.
local function reserve()
  local reserved = recall(1)
  local status, decided_by, wait_ms, levels = ADMITTED, 0, 0, {}
  for i = 1, count do
    local blocked_ms = 0
    if kinds[i] == 'rate' then
      levels[i] = units_left(i)
      local needed = amounts[i] * periods[i]
      if amounts[i] > limits[i] then
        if status ~= TOO_EXPENSIVE then status, decided_by, wait_ms = TOO_EXPENSIVE, i, 0 end
      elseif needed > levels[i] then
        blocked_ms = divide_up(needed - levels[i], limits[i])
      end
    else
      levels[i] = running(i)
      if levels[i] + 1 > limits[i] then blocked_ms = CONCURRENCY_WAIT_MS end
    end
    if blocked_ms > wait_ms and status ~= TOO_EXPENSIVE then
      status, decided_by, wait_ms = REFUSED, i, blocked_ms
    end
  end
  if reserved then
    status, decided_by, wait_ms = #reserved > 0 and ADMITTED or SETTLED, 0, 0
  elseif status == ADMITTED then
    for i = 1, count do
      if kinds[i] == 'rate' then
        levels[i] = levels[i] - amounts[i] * periods[i]
        store_units(i, levels[i])
      else
        levels[i] = levels[i] + 1
        redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('%.0f', now))
        lease(i, ARGV[first_id + 1])
      end
    end
    remember(1, amounts, record_ms)
  end
  return { status, decided_by, wait_ms, unpack(levels) }
end

-- Gives back what was reserved and not used, takes what was used and not reserved. Answers {1} when it did, {0} when
-- the id was settled before or is forgotten; the request stops running in any case.
local function settle()
  local reserved = recall(1) or {}
  for i = 1, count do
    if kinds[i] == 'concurrency' then
      redis.call('ZREM', KEYS[i], ARGV[first_id + 1])
    elseif reserved[i] and reserved[i] ~= amounts[i] then
      store_units(i, units_left(i) + (reserved[i] - amounts[i]) * periods[i])
    end
  end
  remember(1, {}, lease_ms)
  return { #reserved > 0 and 1 or 0 }
end

-- Extends the leases of requests that still run. An id this server knows nothing of (its data was lost) counts as
-- running again; a settled one does not. Answers {how many were renewed}.
local function renew()
  local renewed = 0
  for j = 1, #KEYS - count do
    local reserved = recall(j)
    if not reserved or #reserved > 0 then
      for i = 1, count do
        if kinds[i] == 'concurrency' then lease(i, ARGV[first_id + j]) end
      end
      if reserved then remember(j, reserved, record_ms) end
      renewed = renewed + 1
    end
  end
  return { renewed }
end

if verb == 'reserve' then return reserve() end
if verb == 'settle' then return settle() end
return renew()
