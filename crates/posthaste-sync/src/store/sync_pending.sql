-- The ids of these for which the job of a change is still to run: it has not failed, and is overdue
-- for less than ten minutes.
SELECT DISTINCT j.kwargs ->> 'id'::text
  FROM posthaste.job j LEFT JOIN posthaste.synced s ON s.name = $1
 WHERE j.queue = 'sync.' || $1 AND j.kwargs ->> 'id'::text = ANY ($2) AND j.attempt = 0
   AND j.state IN ('available', 'blocked', 'scheduled', 'retrying', 'running', 'quarantined')
   AND greatest(j.scheduled_at, j.enqueued_at + s.delay)
       > clock_timestamp() - interval '10 minutes'
   AND (j.last_error IS NULL OR j.last_error LIKE '%: written, and to be seen')
