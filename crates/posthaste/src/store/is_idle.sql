-- Whether no job of these queues is due, running or blocked. $1 text[]
SELECT NOT EXISTS (
  SELECT FROM posthaste.job
   WHERE queue = ANY ($1::text[])
     AND (state IN ('available', 'blocked', 'running', 'quarantined')
          OR state IN ('scheduled', 'retrying') AND scheduled_at <= clock_timestamp())) AS is_idle
