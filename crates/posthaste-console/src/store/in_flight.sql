-- Jobs that run for long, await a confirmation or are quarantined, with ids below this one, newest
-- first. A condition that is NULL is ignored.
SELECT j.id::text AS at, j.id, j.name, j.queue, j.priority, j.state AS state, j.attempt,
       j.max_attempts, j.enqueued_at, j.scheduled_at, j.tag,
       left(j.last_error, 400) AS last_error,
       CASE WHEN j.kwargs_bytes <= 4096 THEN j.kwargs::text END AS kwargs, j.kwargs_bytes
  FROM posthaste.in_flight j
 WHERE j.id < $1::bigint
   AND ($2::text IS NULL OR j.queue LIKE $2::text) AND ($3::text IS NULL OR j.name LIKE $3::text)
   AND ($4::text IS NULL OR j.tag LIKE $4::text) AND ($5::text IS NULL OR j.state = $5::text)
   AND ($6::text IS NULL OR j.last_error LIKE $6::text)
   AND ($8::timestamptz IS NULL OR j.enqueued_at >= $8::timestamptz)
   AND ($9::timestamptz IS NULL OR j.enqueued_at < $9::timestamptz)
   AND ($10::text IS NULL OR j.ordering_key LIKE $10::text)
   AND ($11::integer IS NULL OR j.priority = $11::integer)
   AND ($12::bigint IS NULL OR j.worker = $12::bigint)
 ORDER BY j.id DESC LIMIT $7::bigint
