-- What asynq's server does beside its work, for a queue that may have none: tasks whose worker was
-- lost go back to the front, those to be tried again go to the end of the line, and those that were
-- done long enough ago are forgotten. Answers how many came back.
-- KEYS pending, active, lease, retry, completed; ARGV what keys of tasks begin with
local now = redis.call('TIME')
local back = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now[1], 'LIMIT', 0, 100)
local moved = 0
local function wait(id)
  local since = now[1] .. string.format('%06d', now[2]) .. '000'
  redis.call('HSET', ARGV[1] .. id, 'state', 'pending', 'pending_since', since)
  moved = moved + 1
end
for _, id in ipairs(back) do
  redis.call('LREM', KEYS[2], 0, id)
  redis.call('ZREM', KEYS[3], id)
  -- Who evicts tasks leaves their ids behind.
  if redis.call('EXISTS', ARGV[1] .. id) == 1 then
    redis.call('RPUSH', KEYS[1], id)
    wait(id)
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now[1], 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[4], id)
  redis.call('LPUSH', KEYS[1], id)
  wait(id)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', now[1], 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[5], id)
  redis.call('DEL', ARGV[1] .. id)
end
return moved
