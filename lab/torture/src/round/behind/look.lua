-- What lies in a list, pushed from its left, beyond what was read of it. KEYS: the list, the mark of its life.
-- ARGV: the life that was read, a new one, how much was read, where the bodies of its elements lie, if elsewhere.
local life, read = redis.call('GET', KEYS[2]), tonumber(ARGV[3])
if life ~= ARGV[1] then
  life, read = ARGV[2], 0
  redis.call('SET', KEYS[2], life)
end
local elements = redis.call('LRANGE', KEYS[1], -(read + 200), -(read + 1))
local oldest_first = {}
for i = #elements, 1, -1 do
  local element = elements[i]
  if ARGV[4] ~= '' then
    element = redis.call('HGET', ARGV[4] .. element, 'msg')
  end
  oldest_first[#oldest_first + 1] = element
end
return {life, oldest_first}
