-- Retained completed jobs with ids below $1, newest first: the matching ones of the next few
-- thousand ($2). The last row, without a name, has the last job read and the number of jobs read. A
-- condition that is NULL is ignored.
WITH near AS MATERIALIZED (
  SELECT f.id, f.ended_at, f.queue, f.name, f.tag, f.last_error, f.ordering_key,
         f.priority, f.worker
    FROM posthaste.finished f WHERE f.id < $1::bigint ORDER BY f.id DESC LIMIT $2::bigint
), matches AS MATERIALIZED (
  SELECT n.id FROM near n
   WHERE ($3::text IS NULL OR n.queue LIKE $3::text) AND ($4::text IS NULL OR n.name LIKE $4::text)
     AND ($5::text IS NULL OR n.tag LIKE $5::text)
     AND ($6::text IS NULL OR n.last_error LIKE $6::text)
     AND ($7::timestamptz IS NULL OR n.ended_at >= $7::timestamptz)
     AND ($8::timestamptz IS NULL OR n.ended_at < $8::timestamptz)
     AND ($10::text IS NULL OR n.ordering_key LIKE $10::text)
     AND ($11::integer IS NULL OR n.priority = $11::integer)
     AND ($12::bigint IS NULL OR n.worker = $12::bigint)
   ORDER BY n.id DESC LIMIT $9::bigint
), scanned AS (
  SELECT n.id, n.ended_at, count(*) OVER () AS rows FROM near n ORDER BY n.id LIMIT 1
)
SELECT f.id, f.ended_at, f.name, f.queue, f.priority, 'completed'::text AS state, f.attempt,
       f.max_attempts, f.enqueued_at, f.scheduled_at, f.tag, left(f.last_error, 400) AS last_error,
       CASE WHEN octet_length(f.kwargs::text) <= 4096 THEN f.kwargs::text END AS kwargs,
       octet_length(f.kwargs::text) AS kwargs_bytes
  FROM posthaste.finished f WHERE f.id = ANY (ARRAY(SELECT m.id FROM matches m))
UNION ALL
SELECT s.id, s.ended_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       s.rows::integer
  FROM scanned s
 ORDER BY id DESC
