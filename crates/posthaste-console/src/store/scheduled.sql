-- Scheduled jobs of slot $1 among the rows between two places in the table, last written first. The
-- year 9999 marks a job that waits for its turn. A condition that is NULL is ignored.
WITH page AS MATERIALIZED (
    (SELECT * FROM posthaste.promote_cursor_6 WHERE $1::integer = 6 ORDER BY page DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM posthaste.promote_cursor_7 WHERE $1::integer = 7 ORDER BY page DESC LIMIT 1)
)
SELECT w.ctid::text AS at, w.id, w.name, coalesce(w.own_queue, w.queue) AS queue,
       coalesce(w.own_priority, w.priority) AS priority, w.state, w.attempt, w.max_attempts,
       w.enqueued_at, w.due AS scheduled_at, w.tag, left(w.last_error, 400) AS last_error,
       CASE WHEN w.kwargs_bytes <= 4096 THEN w.kwargs::text END AS kwargs, w.kwargs_bytes
  FROM (
  SELECT s.ctid, s.*,
         CASE WHEN s.scheduled_at = '9999-01-01Z' THEN s.enqueued_at ELSE s.scheduled_at END AS due,
         CASE WHEN s.expires_at <= clock_timestamp() THEN 'expired'
              WHEN s.scheduled_at = '9999-01-01Z' THEN 'blocked' WHEN s.attempt > 0 THEN 'retrying'
              ELSE 'scheduled' END AS state
    FROM posthaste.store s LEFT JOIN page p ON true
   WHERE s.slot = $1::integer AND s.ctid >= $2::text::tid AND s.ctid < $3::text::tid
     AND ($7::text IS DISTINCT FROM 'retrying' OR s.attempt > 0)
     AND ($4::text IS NULL OR coalesce(s.own_queue, s.queue) LIKE $4::text)
     AND ($5::text IS NULL OR s.name LIKE $5::text) AND ($6::text IS NULL OR s.tag LIKE $6::text)
     AND ($8::text IS NULL OR s.last_error LIKE $8::text)
     AND ($10::timestamptz IS NULL OR s.enqueued_at >= $10::timestamptz)
     AND ($11::timestamptz IS NULL OR s.enqueued_at < $11::timestamptz)
     AND ($12::text IS NULL OR s.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR coalesce(s.own_priority, s.priority) = $13::integer)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
                      WHERE $1::integer = 6 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
                      WHERE $1::integer = 7 AND e.xid = s.xid AND e.id = s.id)
     AND NOT coalesce(posthaste.promoted(s.xid, s.scheduled_at, s.id, p.t_lo, p.t_hi, p.lo, p.hi,
                                         p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted),
                      false)
) w
 WHERE $7::text IS NULL OR w.state = $7::text
 ORDER BY w.ctid DESC LIMIT $9::bigint
