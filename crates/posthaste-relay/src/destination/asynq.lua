-- Takes one task, unless it is here already: pending, scheduled, running, kept after its end, or archived.
-- KEYS: the task, its queue's pending or scheduled tasks. ARGV: the task's bytes, its id, the time in nanoseconds, when it is due in seconds if it is scheduled.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
-- A right that is missing in the middle would leave the id of a task that is not there. Redis 7 knows before.
if redis.acl_check_cmd and not redis.acl_check_cmd('HSET', KEYS[1], 'msg', '') then
  return redis.error_reply('NOPERM this user has no permissions to run the \'hset\' command on a task')
end
-- The list comes first: if something else lies there nothing was written, and the task is not taken for known when it comes again.
if ARGV[4] ~= '' then
  redis.call('ZADD', KEYS[2], ARGV[4], ARGV[2])
  redis.call('HSET', KEYS[1], 'msg', ARGV[1], 'state', 'scheduled')
else
  redis.call('LPUSH', KEYS[2], ARGV[2])
  redis.call('HSET', KEYS[1], 'msg', ARGV[1], 'state', 'pending', 'pending_since', ARGV[3])
end
return 1
