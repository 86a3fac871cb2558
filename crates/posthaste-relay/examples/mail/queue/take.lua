-- The next task of an asynq queue, and a lease on it, in one step: no death of a worker leaves it
-- without one. The end of the lease, in the server's time and told to the microsecond, is also the
-- fence: whoever takes the task later has another one.
-- KEYS pending, paused, active, lease; ARGV seconds, what keys of tasks begin with
if redis.call('EXISTS', KEYS[2]) == 1 then return false end
local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
if not id then return false end
local now = redis.call('TIME')
local ends = string.format('%d.%06d', now[1] + ARGV[1], now[2])
redis.call('ZADD', KEYS[4], ends, id)
redis.call('HSET', ARGV[2] .. id, 'state', 'active')
redis.call('HDEL', ARGV[2] .. id, 'pending_since')
return { id, ends, redis.call('HGET', ARGV[2] .. id, 'msg') or '' }
