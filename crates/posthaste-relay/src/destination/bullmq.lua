-- Adds one job, unless one of its id is here already: waiting, delayed, running, or kept after its end.
-- KEYS: the job; of its queue id, meta, wait, paused, active, prioritized, pc, marker, events, delayed.
-- ARGV: the job's id, name, data, options, time in milliseconds, priority (0 for none), delay in milliseconds.
local job, counter, meta, wait, paused, active, prioritized, sequence, marker, events, delayed = unpack(KEYS)
local id, name, priority, delay = ARGV[1], ARGV[2], tonumber(ARGV[6]), tonumber(ARGV[7])
local due = tonumber(ARGV[5]) + delay

redis.call('INCR', counter)
local said = redis.call('HMGET', meta, 'paused', 'concurrency', 'version', 'opts.maxLenEvents')
local is_paused, most, version, kept = said[1], said[2], said[3], said[4]
if not kept then
  kept = '10000'
  redis.call('HSET', meta, 'opts.maxLenEvents', kept)
end

-- Events only tell: the job does not fail with them.
local function tell(event, ...)
  redis.pcall('XADD', events, 'MAXLEN', '~', kept, '*', 'event', event, 'jobId', id, ...)
end

if redis.call('EXISTS', job) == 1 then
  tell('duplicated')
  return 0
end

-- A right that is missing in the middle would leave the id of a job that is not there. Redis 7 knows before.
if redis.acl_check_cmd and not redis.acl_check_cmd('HSET', job, 'name', name) then
  return redis.error_reply('NOPERM this user has no permissions to run the \'hset\' command on a job')
end

-- What another type in its place can refuse comes first, so that a job that is known lies in its queue.
if delay > 0 then
  -- Those of one millisecond keep their order, as far as there is room.
  local first = due * 0x1000
  local last = redis.call('ZREVRANGEBYSCORE', delayed, first + 0xfff, first, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  redis.call('ZADD', delayed, last and math.min(last + 1, first + 0xfff) or first, id)
elseif priority > 0 then
  local number = redis.call('INCR', sequence) % 0x100000000
  redis.call('ZADD', prioritized, priority * 0x100000000 + number, id)
else
  -- Up to version 5 what comes while a queue is paused waits elsewhere, and a resume puts that list over the other one. Later versions look there too.
  local major = tonumber(string.match(version or '', '^bullmq:(%d+)'))
  local is_elsewhere = is_paused and not (major and major > 5)
  redis.call('LPUSH', is_elsewhere and paused or wait, id)
end
redis.call('HSET', job, 'name', name, 'data', ARGV[3], 'opts', ARGV[4], 'timestamp', ARGV[5], 'delay', delay, 'priority', priority)

if delay > 0 then
  local soonest = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', marker, math.floor(soonest / 0x1000), '1')
  tell('added', 'name', name)
  tell('delayed', 'delay', due)
  return 1
end

-- Workers that have nothing to do wait for the marker.
local is_full = most and redis.call('LLEN', active) >= tonumber(most)
if not is_paused and not is_full then
  redis.call('ZADD', marker, 0, '0')
end
tell('added', 'name', name)
tell('waiting')
return 1
