-- Queues a task again by its id, as asynq would. Answers what it was: 'completed' is left alone,
-- because its work was done; 'archived' and 'missing' are queued now; all else is on its way
-- already.
-- KEYS pending, archived, task, asynq's list of queues; ARGV id, message, name of the queue
local state = redis.call('HGET', KEYS[3], 'state') or 'missing'
if state == 'archived' or state == 'missing' then
  redis.call('SADD', KEYS[4], ARGV[3])
  redis.call('ZREM', KEYS[2], ARGV[1])
  local now = redis.call('TIME')
  local since = now[1] .. string.format('%06d', now[2]) .. '000'
  redis.call('HSET', KEYS[3], 'state', 'pending', 'pending_since', since)
  redis.call('HSETNX', KEYS[3], 'msg', ARGV[2])
  redis.call('LPUSH', KEYS[1], ARGV[1])
end
return state
