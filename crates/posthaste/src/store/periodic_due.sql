-- Periodic jobs whose tick has come, that no leader has seen yet, or that were looked at by a clock
-- which has stepped back since; and those whose tick comes before the leader asks again.
SELECT name, schedule, time_zone, missed, next_at, clock_timestamp() AS now,
       next_at > clock_timestamp() AND coalesce(looked_at <= clock_timestamp(), true) AS is_ahead
  FROM posthaste.periodic
 WHERE next_at IS NULL OR next_at <= clock_timestamp() + interval '1 s'
    OR looked_at > clock_timestamp() LIMIT 1000
