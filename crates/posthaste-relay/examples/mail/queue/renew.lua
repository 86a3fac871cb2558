-- A lease that ends later; nothing when it is somebody else's by now.
-- KEYS lease; ARGV id, end, seconds
local held = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not held or tonumber(held) ~= tonumber(ARGV[2]) then return false end
local now = redis.call('TIME')
local ends = string.format('%d.%06d', now[1] + ARGV[3], now[2])
redis.call('ZADD', KEYS[1], ends, ARGV[1])
return ends
