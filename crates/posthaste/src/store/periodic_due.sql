-- Periodic jobs whose tick has come, that no leader has seen yet, or that were looked at by a clock
-- which has stepped back since.
SELECT name, schedule, time_zone, missed, next_at, clock_timestamp() AS now FROM posthaste.periodic
 WHERE next_at IS NULL OR next_at <= clock_timestamp() OR looked_at > clock_timestamp() LIMIT 1000
