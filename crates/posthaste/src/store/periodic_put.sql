-- Says what a periodic job is. Its next tick is found anew where the schedule changed.
INSERT INTO posthaste.periodic AS p (name, schedule, time_zone, missed, job, kwargs, queue,
                                     priority, tag, max_attempts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (name) DO UPDATE SET
  schedule = excluded.schedule, time_zone = excluded.time_zone, missed = excluded.missed,
  job = excluded.job, kwargs = excluded.kwargs, queue = excluded.queue,
  priority = excluded.priority, tag = excluded.tag, max_attempts = excluded.max_attempts,
  next_at = CASE WHEN (p.schedule, p.time_zone) = (excluded.schedule, excluded.time_zone)
                 THEN p.next_at END,
  made = CASE WHEN (p.schedule, p.time_zone) = (excluded.schedule, excluded.time_zone)
              THEN p.made ELSE '{}' END
