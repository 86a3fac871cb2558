-- Jobs of a queue that are not running, some at a time.
SELECT j.id FROM posthaste.job j WHERE j.queue = $1
   AND j.state IN ('available', 'blocked', 'scheduled', 'retrying') LIMIT 5000
