-- Every row that the store still has of some jobs, and the cursors that should have found them.
WITH job AS (SELECT s.tableoid::regclass::text AS place, s.* FROM posthaste.store s
              WHERE (s.kwargs->>'key')::bigint = ANY ($1)),
job_done AS (
  SELECT 0 AS slot, * FROM posthaste.job_done_0 UNION ALL
  SELECT 1, * FROM posthaste.job_done_1 UNION ALL SELECT 2, * FROM posthaste.job_done_2 UNION ALL
  SELECT 3, * FROM posthaste.job_done_3 UNION ALL SELECT 4, * FROM posthaste.job_done_4 UNION ALL
  SELECT 5, * FROM posthaste.job_done_5),
promote_cursor AS (SELECT 6 AS slot, * FROM posthaste.promote_cursor_6 UNION ALL
                   SELECT 7, * FROM posthaste.promote_cursor_7)
SELECT format('job %s of key %s in %s: xid %s, attempt %s, due %s, closed as %s', j.id,
              j.kwargs->>'key', j.place, j.xid, j.attempt, j.scheduled_at, a.outcome)
  FROM job j LEFT JOIN job_done a ON a.slot = j.slot AND a.xid = j.xid AND a.id = j.id
UNION ALL
SELECT format('job %s of key %s is in flight: %s', h.id, h.kwargs->>'key', h.state)
  FROM posthaste.in_flight h WHERE (h.kwargs->>'key')::bigint = ANY ($1)
UNION ALL
SELECT format('page %s of slot %s: due after %s up to %s, seen %s then %s, bounds %s then %s',
              p.page, p.slot, p.t_lo, p.t_hi, p.lo, p.hi, p.lo_bound, p.hi_bound)
  FROM job j JOIN promote_cursor p ON p.slot = j.slot
   AND p.t_hi >= j.scheduled_at - interval '20 ms' AND p.t_lo <= j.scheduled_at + interval '20 ms'
UNION ALL
SELECT format('now: %s %s', pg_current_snapshot(), (SELECT r FROM posthaste.segments() r))
