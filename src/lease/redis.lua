-- The store half of leapgate in Redis: it decides as src/lease/state.rs does. KEYS[1]: a key. ARGV[1]: the request of a node.
-- Times and buckets count from `base`, which is short to keep, and ids from a thousand times that.
local floor, min, max, insert = math.floor, math.min, math.max, table.insert
local MOST, WHOLE, ROUNDING = 2 ^ 53 - 1, 2 ^ 40, 2 ^ 11
local BAD = 'a request that the script of leapgate does not know: the versions of a node and of its script differ'

local q, length = {}, -1
for digits in string.gmatch('-' .. ARGV[1], '%-(%d+)') do
  length = length + 1 + #digits
  q[#q + 1] = tonumber(digits)
  if #q > 1024 or q[#q] > MOST then return BAD end
end
if length ~= #ARGV[1] or #q < 10 or q[1] ~= 1 then return BAD end
local seq, node, nodes, limit, interval, buckets, ttl, want, need = q[2], q[3], q[4], q[5], q[6], q[7], q[8], q[9], q[10]
if interval < 1 or interval > 315360000000 or buckets < 1 or buckets > 1000 or interval % buckets > 0 then return BAD end
local bucket, longest = interval / buckets, 4 * max(50, min(floor(interval / 20), 3000))
local memory = interval + bucket + longest
if ttl < 1 or ttl > longest or need > want then return BAD end

-- Before Redis 7 a script that reads the clock may write only so.
if redis.replicate_commands then redis.replicate_commands() end
local time = redis.call('TIME')
local clock = min(time[1] * 1000 + floor(time[2] / 1000), 2 ^ 43)
local packed = redis.pcall('GET', KEYS[1])
local head, ring, holds, members, ok
if packed then
  ok, head, ring, holds, members = pcall(cmsgpack.unpack, packed)
  if not ok or type(members) ~= 'table' or type(head) ~= 'table' or head[1] ~= 1 or #head ~= 5 then
    return 'the value of this key is not one of the script of leapgate: take another prefix of keys'
  end
end
if not packed or head[2] + max(head[3] + memory, head[5]) <= clock then
  -- Where INFO is not allowed, or does not say so, the server is taken for an old one.
  local info = redis.pcall('INFO', 'server')
  local uptime = type(info) == 'string' and string.match(info, 'uptime_in_seconds:(%d+)') or MOST
  local unknown = memory - max(uptime - 1, 0) * 1000
  local base = clock - clock % bucket
  head, ring, holds, members = {1, base, 0, -1, unknown > 0 and clock - base + unknown or 0}, {}, {}, {}
end
local base, last, full = head[2], head[4], head[5]
local now = max(head[3], clock - base)

-- The buckets that count: number, use, number, use ... They are numbered from the oldest that counts.
local oldest = floor(now / bucket) - buckets
local gone, sum, size = oldest - floor(head[3] / bucket) + buckets, 0, 0
for i = 1, #ring, 2 do
  local number, n = ring[i] - gone, ring[i + 1]
  if number >= 0 then
    ring[size + 1], ring[size + 2] = number, n
    sum, size = sum + n, size + 2
  end
end
for i = #ring, size + 1, -1 do ring[i] = nil end
sum = min(sum, MOST)
local function add(at, n)
  local number = floor(min(at, now) / bucket) - oldest
  if n == 0 or number < 0 then return end
  local i = #ring - 1
  while i > 0 and ring[i] > number do i = i - 2 end
  if ring[i] == number then
    ring[i + 1] = min(ring[i + 1] + n, MOST)
  else
    insert(ring, i + 2, number)
    insert(ring, i + 3, n)
  end
  sum = min(sum + n, MOST)
end

-- Takes out the row of `width` numbers at `i`.
local function remove(rows, i, width)
  for j = i, #rows do rows[j] = rows[j + width] end
end

-- Holds: id, node, left, until, seq. Those whose time is over count as used at its end.
for i = #holds - 4, 1, -5 do
  if holds[i + 3] <= now then
    add(holds[i + 3], holds[i + 2])
    remove(holds, i, 5)
  end
end

-- Members: node, seen, told, before, reported, seq. Each has a part of the limit for times without the store: what it was told, or,
-- where that answer was lost, what it believed when it asked.
local me, others = nil, 0
for i = #members - 5, 1, -6 do
  if members[i] == node then
    me = i
  elseif now - members[i + 1] >= memory then
    remove(members, i, 6)
    me = me and me - 6
  else
    local told, before = members[i + 2], members[i + 3]
    if told == 0 or before > 0 and before < told then told = before end
    if told > 0 then others = others + floor(WHOLE / told) end
  end
end
if not me and #members < 6144 then
  me = #members + 1
  members[me], members[me + 1], members[me + 2] = node, now, 0
  members[me + 3], members[me + 4], members[me + 5] = 0, 0, 0
end
local told = 0
if me then
  local part = min(floor(WHOLE / (#members / 6)), max(WHOLE - others, 0))
  if part > ROUNDING then told = math.ceil((WHOLE - ROUNDING) / part) end
  members[me + 1] = now
  -- A request that is late says nothing of what the node believes now.
  if seq > members[me + 5] then
    members[me + 2], members[me + 3], members[me + 5] = told, nodes, seq
  end
  told = members[me + 2]
end

local i = 11
while i <= #q do
  local id, seq, closes, from, to = q[i], q[i + 1], q[i + 2], i + 4, nil
  if i + 3 > #q then return BAD end
  to = from + 2 * q[i + 3] - 1
  if to > #q then return BAD end
  i = to + 1
  local rows, row = members, me
  if id > 0 then
    rows, row = holds, 1
    while holds[row] and (holds[row] ~= id - base * 1000 or holds[row + 1] ~= node) do row = row + 5 end
    if not holds[row] then row = false end
  end
  -- What was seen changes nothing. A report of a node without a place counts: it is not known whether it was seen.
  if (row and seq > rows[row + 4]) or (id == 0 and not row) then
    local used = 0
    for j = from, to, 2 do
      add(now - q[j], q[j + 1])
      used = min(used + q[j + 1], MOST)
    end
    if row then rows[row + 4] = seq end
    if id > 0 then
      holds[row + 2] = max(holds[row + 2] - used, 0)
      if closes == 1 then remove(holds, row, 5) end
    end
  end
end

local held, first = 0, nil
for i = 1, #holds, 5 do
  held, first = held + holds[i + 2], min(first or MOST, holds[i + 3])
end
local room = max(limit - sum - held, 0)
if full > now or #holds >= 20480 then room = 0 end
local granted, id = 0, 0
if room >= need then granted = min(want, room) end
if granted > 0 then
  last = max(last + 1, now * 1000)
  id = last + base * 1000
  first = min(first or MOST, now + ttl)
  held = held + granted
  local i = #holds
  holds[i + 1], holds[i + 2], holds[i + 3], holds[i + 4], holds[i + 5] = last, node, granted, now + ttl, 0
end

-- From when on at most so many count in the ring.
local function falls_to(most)
  local left, at, i = sum, now, 1
  while left > most do
    left, at, i = left - ring[i + 1], (ring[i] + oldest + buckets + 1) * bucket, i + 2
  end
  return at
end
local retry = 0
if granted < want then
  local most = limit - max(need, 1)
  retry = interval
  if most >= 0 then
    local with = most >= held and falls_to(most - held) or now + memory
    local without = max(falls_to(most), first or now + memory)
    retry = max(min(with, without), full, #holds >= 20480 and first or 0, now + 1) - now
  end
end

packed = cmsgpack.pack({1, base, now, last, full}, ring, holds, members)
local expiry = string.format('%.0f', base + max(now + memory, full) - clock)
redis.call('SET', KEYS[1], packed, 'PX', expiry)
-- (seq + node) modulo 2^53: their sum could be rounded.
local echo = seq > MOST - node and seq - (MOST - node) - 1 or seq + node
return string.format('1-%.0f-%.0f-%.0f-%.0f-%.0f-%.0f', echo, id, granted, retry, room - granted, told)
