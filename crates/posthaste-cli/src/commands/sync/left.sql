-- Jobs of these queues that were there at this time and are due, under way, or due within a moment
-- because a document was written and is to be seen. Nobody takes those of a queue that rests.
SELECT count(*)
  FROM posthaste.job j
 WHERE j.queue = ANY ($1) AND j.enqueued_at <= $2
   AND NOT EXISTS (SELECT FROM posthaste.queue q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
   AND (j.state IN ('available', 'blocked', 'running', 'quarantined')
        OR j.state IN ('scheduled', 'retrying')
           AND j.scheduled_at <= clock_timestamp() + interval '3 s')
