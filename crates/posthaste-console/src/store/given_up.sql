-- Dead jobs of state $1, newest deaths first: the matching ones of the next few thousand before
-- this time and id ($8). The last row, without a name, has the last job read and the number of jobs
-- read. A condition that is NULL is ignored.
WITH near AS MATERIALIZED (
  SELECT d.id, d.died_at, d.queue, d.name, d.tag, d.last_error, d.ordering_key, d.priority
    FROM posthaste.dead d
   WHERE d.state = $1::text AND d.died_at <= $2::timestamptz
     AND (d.died_at, d.id) < ($2::timestamptz, $3::bigint)
     AND d.died_at >= coalesce($10::timestamptz, '-infinity')
     AND d.died_at < coalesce($11::timestamptz, 'infinity')
   ORDER BY d.died_at DESC, d.id DESC LIMIT $8::bigint
), matching AS MATERIALIZED (
  SELECT n.id FROM near n
   WHERE ($4::text IS NULL OR n.queue LIKE $4::text) AND ($5::text IS NULL OR n.name LIKE $5::text)
     AND ($6::text IS NULL OR n.tag LIKE $6::text)
     AND ($7::text IS NULL OR n.last_error LIKE $7::text)
     AND ($12::text IS NULL OR n.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR n.priority = $13::integer)
   ORDER BY n.died_at DESC, n.id DESC LIMIT $9::bigint
), scanned AS (
  SELECT n.id, n.died_at, count(*) OVER () AS rows FROM near n ORDER BY n.died_at, n.id LIMIT 1
)
SELECT d.id, d.died_at, d.name, d.queue, d.priority, d.state, d.attempt, d.max_attempts,
       d.enqueued_at, d.scheduled_at, d.tag, left(d.last_error, 400) AS last_error,
       CASE WHEN d.kwargs_bytes <= 4096 THEN d.kwargs::text END AS kwargs, d.kwargs_bytes
  FROM posthaste.dead d WHERE d.id = ANY (ARRAY(SELECT m.id FROM matching m))
UNION ALL
SELECT l.id, l.died_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       l.rows::integer
  FROM scanned l
 ORDER BY died_at DESC, id DESC
