-- Enqueues the job of a periodic job now, beside its schedule: its number. No row: there is none.
SELECT posthaste.enqueue(p.job, p.kwargs, p.queue, p.priority, clock_timestamp(),
                         NULL::timestamptz, p.tag, NULL::text, p.max_attempts) AS id
  FROM posthaste.periodic p WHERE p.name = $1::text
