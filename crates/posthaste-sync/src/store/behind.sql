-- For each sync: the number of changes that are due and not done, the age of the oldest, and the
-- errors that block them, by reason. A job that was tried has a new due time; originally it was due
-- its delay after it was enqueued. A job that has written its document waits for it to become
-- visible, and is not blocked.
WITH queue AS (
  SELECT s.name AS sync, 'sync.' || s.name AS name, s.delay, true AS is_change
    FROM posthaste.synced s
  UNION ALL
  SELECT s.name, 'sync.' || s.name || '.reindex', interval '0', false FROM posthaste.synced s
), tried AS MATERIALIZED (
  SELECT q.sync, q.is_change, left(j.last_error, 300) AS reason,
         j.state IN ('dead', 'discarded', 'expired') AS is_over,
         j.last_error LIKE '%: written, and to be seen' AS is_written,
         extract(epoch FROM clock_timestamp()
                 - CASE WHEN j.last_error IS NULL OR j.scheduled_at < j.enqueued_at + q.delay
                        THEN j.scheduled_at ELSE j.enqueued_at + q.delay END)::float8 AS seconds
    FROM queue q JOIN posthaste.job j ON j.queue = q.name
   WHERE j.state <> 'cancelled'
)
SELECT t.sync, NULL::text AS reason, count(*) AS jobs, max(t.seconds) AS seconds, false AS is_over
  FROM tried t
 WHERE t.is_change AND NOT t.is_over AND (t.reason IS NOT NULL OR t.seconds >= 0::float8)
 GROUP BY t.sync
UNION ALL
SELECT t.sync, t.reason, count(*), max(t.seconds), t.is_over
  FROM tried t WHERE t.reason IS NOT NULL AND NOT t.is_written
 GROUP BY t.sync, t.reason, t.is_over
 ORDER BY seconds DESC, sync, reason
