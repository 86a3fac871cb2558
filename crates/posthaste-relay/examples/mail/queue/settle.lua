-- The end of a run: the task goes where asynq keeps those that are done, given up or to be tried again. 0 when the lease is somebody else's by now.
-- KEYS active, lease, where to, task; ARGV id, end, seconds from now, state
local held = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not held or tonumber(held) ~= tonumber(ARGV[2]) then return 0 end
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], redis.call('TIME')[1] + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[4], 'state', ARGV[4])
return 1
