-- Jobs that wait for their turn of an ordering key ($1), the next first: those with a turn after
-- the current one.
WITH stand AS MATERIALIZED (
  SELECT coalesce((SELECT s.turn FROM posthaste.ordering_position($1::text) s), -1::bigint) AS turn
)
SELECT w.id, w.name, w.queue, w.enqueued_at FROM (
  (SELECT r.turn, r.id, r.name, coalesce(r.own_queue, r.queue) AS queue, r.enqueued_at
     FROM posthaste.scheduled_6 r LEFT JOIN (
          SELECT * FROM posthaste.promote_cursor_6 c ORDER BY c.page DESC LIMIT 1) p ON true
    WHERE r.ordering_key = $1::text AND r.turn > (SELECT s.turn FROM stand s)
      AND r.scheduled_at = '9999-01-01Z'
      AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
                       WHERE e.xid = r.xid AND e.id = r.id)
      AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                                          p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted),
                       false)
    ORDER BY r.ordering_key, r.turn LIMIT $2::bigint)
  UNION ALL
  (SELECT r.turn, r.id, r.name, coalesce(r.own_queue, r.queue), r.enqueued_at
     FROM posthaste.scheduled_7 r LEFT JOIN (
          SELECT * FROM posthaste.promote_cursor_7 c ORDER BY c.page DESC LIMIT 1) p ON true
    WHERE r.ordering_key = $1::text AND r.turn > (SELECT s.turn FROM stand s)
      AND r.scheduled_at = '9999-01-01Z'
      AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
                       WHERE e.xid = r.xid AND e.id = r.id)
      AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                                          p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted),
                       false)
    ORDER BY r.ordering_key, r.turn LIMIT $2::bigint)) w
 ORDER BY w.turn LIMIT $2::bigint
