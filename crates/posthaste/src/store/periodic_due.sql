-- Periodic jobs that a leader has not seen yet, or whose tick has come; and the server's time.
SELECT name, schedule, time_zone, missed, next_at, clock_timestamp() AS now FROM posthaste.periodic
 WHERE next_at IS NULL OR next_at <= clock_timestamp() LIMIT 1000
