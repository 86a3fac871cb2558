-- Writes a periodic job. If its schedule has changed, its next tick is computed again. The worker
-- repeats this only when it restarts, so the commit waits for the disk.
INSERT INTO posthaste.periodic AS p (name, schedule, time_zone, missed, job, kwargs, queue,
                                     priority, tag, max_attempts)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM (SELECT posthaste.wait_for_disk() OFFSET 0) d
ON CONFLICT (name) DO UPDATE SET
  schedule = excluded.schedule, time_zone = excluded.time_zone, missed = excluded.missed,
  job = excluded.job, kwargs = excluded.kwargs, queue = excluded.queue,
  priority = excluded.priority, tag = excluded.tag, max_attempts = excluded.max_attempts,
  next_at = CASE WHEN (p.schedule, p.time_zone) = (excluded.schedule, excluded.time_zone)
                 THEN p.next_at END,
  made = CASE WHEN (p.schedule, p.time_zone) = (excluded.schedule, excluded.time_zone)
              THEN p.made ELSE '{}' END
