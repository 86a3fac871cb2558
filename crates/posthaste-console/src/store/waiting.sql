-- Jobs of slot $1 that wait for a worker or for their turn, among the rows between two places in
-- the table, last written first. A condition that is NULL is ignored.
WITH cursor AS MATERIALIZED (
    SELECT * FROM posthaste.cursors_0() WHERE $1::integer = 0
    UNION ALL SELECT * FROM posthaste.cursors_1() WHERE $1::integer = 1
    UNION ALL SELECT * FROM posthaste.cursors_2() WHERE $1::integer = 2
    UNION ALL SELECT * FROM posthaste.cursors_3() WHERE $1::integer = 3
    UNION ALL SELECT * FROM posthaste.cursors_4() WHERE $1::integer = 4
    UNION ALL SELECT * FROM posthaste.cursors_5() WHERE $1::integer = 5
)
SELECT w.ctid::text AS at, w.id, w.name, coalesce(w.own_queue, w.queue) AS queue,
       coalesce(w.own_priority, w.priority) AS priority, w.state, w.attempt, w.max_attempts,
       w.enqueued_at, w.due AS scheduled_at, w.tag, left(w.last_error, 400) AS last_error,
       CASE WHEN w.kwargs_bytes <= 4096 THEN w.kwargs::text END AS kwargs, w.kwargs_bytes
  FROM (
  SELECT s.ctid, s.*, s.scheduled_at AS due,
         CASE WHEN s.expires_at <= clock_timestamp() THEN 'expired' WHEN s.queue = '' THEN 'blocked'
              ELSE 'available' END AS state
    FROM posthaste.store s LEFT JOIN cursor c ON c.queue = s.queue AND c.priority = s.priority
   WHERE s.slot = $1::integer AND s.ctid >= $2::text::tid AND s.ctid < $3::text::tid
     AND (s.queue <> '' OR s.turn IS NULL)
     AND ($4::text IS NULL OR coalesce(s.own_queue, s.queue) LIKE $4::text)
     AND ($5::text IS NULL OR s.name LIKE $5::text) AND ($6::text IS NULL OR s.tag LIKE $6::text)
     AND ($8::text IS NULL OR s.last_error LIKE $8::text)
     AND ($10::timestamptz IS NULL OR s.enqueued_at >= $10::timestamptz)
     AND ($11::timestamptz IS NULL OR s.enqueued_at < $11::timestamptz)
     AND ($12::text IS NULL OR s.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR coalesce(s.own_priority, s.priority) = $13::integer)
     AND NOT coalesce(posthaste.is_claimed(s.xid, s.id, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted),
                      false)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
                      WHERE $1::integer = 0 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_1 e
                      WHERE $1::integer = 1 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_2 e
                      WHERE $1::integer = 2 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_3 e
                      WHERE $1::integer = 3 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_4 e
                      WHERE $1::integer = 4 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_5 e
                      WHERE $1::integer = 5 AND e.xid = s.xid AND e.id = s.id)
) w
 WHERE $7::text IS NULL OR w.state = $7::text
 ORDER BY w.ctid DESC LIMIT $9::bigint
