-- Enqueues the job of a periodic job now, in addition to its schedule. Returns its id; no row if it
-- does not exist.
SELECT posthaste.enqueue(p.job, p.kwargs, p.queue, p.priority, clock_timestamp(),
                         NULL::timestamptz, p.tag, NULL::text, p.max_attempts) AS id
  FROM posthaste.periodic p WHERE p.name = $1::text
