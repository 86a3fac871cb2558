-- Periodic jobs whose tick is due or follows within a second, that no leader has read yet, or that
-- were read before the clock stepped back. A failed one waits for ten minutes and comes last, and a
-- locked one is skipped, so that they do not displace the others.
SELECT name, schedule, time_zone, missed, next_at, clock_timestamp() AS now,
       next_at > clock_timestamp() AND coalesce(looked_at <= clock_timestamp(), true) AS is_ahead
  FROM posthaste.periodic
 WHERE (next_at IS NULL OR next_at <= clock_timestamp() + interval '1 s'
        OR looked_at > clock_timestamp())
   AND (error IS NULL OR looked_at IS NULL OR looked_at > clock_timestamp()
        OR looked_at < clock_timestamp() - interval '10 min')
 ORDER BY error IS NOT NULL, next_at NULLS LAST LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED
