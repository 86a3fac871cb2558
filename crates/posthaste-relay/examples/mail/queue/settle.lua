-- The end of a run: the task goes where asynq keeps those that are done, given up or to be tried
-- again, with what its inspector shows of it. 0 when the lease is somebody else's by now.
-- KEYS active, lease, where to, task, processed, processed today, failed, failed today
-- ARGV id, end, seconds from now, state, message, 1 if it counts as processed, 1 if as failed,
--      seconds for which the counts of a day are kept
local held = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not held or tonumber(held) ~= tonumber(ARGV[2]) then return 0 end
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], redis.call('TIME')[1] + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[4], 'state', ARGV[4], 'msg', ARGV[5])
local function count(total, today)
  redis.call('INCR', total)
  if redis.call('INCR', today) == 1 then redis.call('EXPIRE', today, ARGV[8]) end
end
if ARGV[6] == '1' then count(KEYS[5], KEYS[6]) end
if ARGV[7] == '1' then count(KEYS[7], KEYS[8]) end
return 1
