-- The number of jobs of these queues that existed at this time and are due, running, or due within
-- 3 s because a written document is to be checked. Jobs of paused queues are not counted.
SELECT count(*)
  FROM posthaste.job j
 WHERE j.queue = ANY ($1) AND j.enqueued_at <= $2
   AND NOT EXISTS (SELECT FROM posthaste.queue q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
   AND (j.state IN ('available', 'blocked', 'running', 'quarantined')
        OR j.state IN ('scheduled', 'retrying')
           AND j.scheduled_at <= clock_timestamp() + interval '3 s')
