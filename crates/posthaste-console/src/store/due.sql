-- Jobs that are due later, the next first: the matching ones of the next few thousand after this
-- time and id ($9). Promoted jobs are before the promoter's cursor and are not read. The last row,
-- without a name, has the last job read and the number of jobs read. A condition that is NULL is
-- ignored.
WITH cursor AS MATERIALIZED (
  (SELECT 6::smallint AS slot, p.* FROM posthaste.promote_cursor_6 p ORDER BY p.page DESC LIMIT 1)
  UNION ALL
  (SELECT 7::smallint, p.* FROM posthaste.promote_cursor_7 p ORDER BY p.page DESC LIMIT 1)
), sent AS MATERIALIZED (
  SELECT c.slot, CASE WHEN c.exhausted THEN c.t_hi ELSE c.t_lo END AS until FROM cursor c
), beginning AS MATERIALIZED (
  SELECT s.slot, greatest($1::timestamptz, s.until) AS due,
         CASE WHEN s.until >= $1::timestamptz THEN 9223372036854775807 ELSE $2::bigint END AS id
    FROM (SELECT g.slot, max(n.until) AS until
            FROM (SELECT 6::smallint AS slot UNION ALL SELECT 7::smallint) g
            LEFT JOIN sent n ON n.slot = g.slot GROUP BY g.slot) s
), near AS MATERIALIZED (
  SELECT n.* FROM (
    (SELECT s.* FROM posthaste.scheduled_6 s
      WHERE (s.scheduled_at, s.id) > ((SELECT b.due FROM beginning b WHERE b.slot = 6::smallint),
                                      (SELECT b.id FROM beginning b WHERE b.slot = 6::smallint))
      ORDER BY s.scheduled_at, s.id LIMIT $9::bigint)
    UNION ALL
    (SELECT s.* FROM posthaste.scheduled_7 s
      WHERE (s.scheduled_at, s.id) > ((SELECT b.due FROM beginning b WHERE b.slot = 7::smallint),
                                      (SELECT b.id FROM beginning b WHERE b.slot = 7::smallint))
      ORDER BY s.scheduled_at, s.id LIMIT $9::bigint)) n
   WHERE n.scheduled_at < '9999-01-01Z'
   ORDER BY n.scheduled_at, n.id LIMIT $9::bigint
), matching AS MATERIALIZED (
  SELECT n.id, n.scheduled_at, n.name, coalesce(n.own_queue, n.queue) AS queue,
         coalesce(n.own_priority, n.priority) AS priority,
         CASE WHEN n.attempt > 0 THEN 'retrying' ELSE 'scheduled' END AS state, n.attempt,
         n.max_attempts, n.enqueued_at, n.tag, left(n.last_error, 400) AS last_error,
         CASE WHEN n.kwargs_bytes <= 4096 THEN n.kwargs::text END AS kwargs, n.kwargs_bytes
    FROM near n LEFT JOIN cursor c ON c.slot = n.slot
   WHERE ($3::text IS NULL OR coalesce(n.own_queue, n.queue) LIKE $3::text)
     AND ($4::text IS NULL OR n.name LIKE $4::text) AND ($5::text IS NULL OR n.tag LIKE $5::text)
     AND ($6::text IS NULL OR ($6::text = 'retrying') = (n.attempt > 0))
     AND ($7::text IS NULL OR n.last_error LIKE $7::text)
     AND ($8::timestamptz IS NULL OR n.enqueued_at >= $8::timestamptz)
     AND ($11::timestamptz IS NULL OR n.enqueued_at < $11::timestamptz)
     AND ($12::text IS NULL OR n.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR coalesce(n.own_priority, n.priority) = $13::integer)
     AND n.expires_at > clock_timestamp()
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
                      WHERE n.slot = 6::smallint AND e.xid = n.xid AND e.id = n.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
                      WHERE n.slot = 7::smallint AND e.xid = n.xid AND e.id = n.id)
     AND NOT coalesce(posthaste.promoted(n.xid, n.scheduled_at, n.id, c.t_lo, c.t_hi, c.lo, c.hi,
                                         c.at_xid, c.at_due, c.at_id, c.late_done, c.exhausted),
                      false)
   ORDER BY n.scheduled_at, n.id LIMIT $10::bigint
), scanned AS (
  SELECT n.id, n.scheduled_at, count(*) OVER () AS rows
    FROM near n ORDER BY n.scheduled_at DESC, n.id DESC LIMIT 1
)
SELECT m.id, m.scheduled_at, m.name, m.queue, m.priority, m.state, m.attempt, m.max_attempts,
       m.enqueued_at, m.tag, m.last_error, m.kwargs, m.kwargs_bytes
  FROM matching m
UNION ALL
SELECT l.id, l.scheduled_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       l.rows::integer
  FROM scanned l
 ORDER BY scheduled_at, id
