-- Periodic jobs whose tick has come, that no leader has seen yet, or that were checked by a clock
-- which has stepped back since; and those whose tick comes before the leader asks again. One that
-- failed waits for ten minutes and comes last, and one that somebody is changing is left for later:
-- however many they are, they take no turn of the others.
SELECT name, schedule, time_zone, missed, next_at, clock_timestamp() AS now,
       next_at > clock_timestamp() AND coalesce(looked_at <= clock_timestamp(), true) AS is_ahead
  FROM posthaste.periodic
 WHERE (next_at IS NULL OR next_at <= clock_timestamp() + interval '1 s'
        OR looked_at > clock_timestamp())
   AND (error IS NULL OR looked_at IS NULL OR looked_at > clock_timestamp()
        OR looked_at < clock_timestamp() - interval '10 min')
 ORDER BY error IS NOT NULL, next_at NULLS LAST LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED
