-- Jobs of a queue that are not completed yet.
SELECT count(*) FROM posthaste.job j WHERE j.queue = $1
   AND j.state IN ('available', 'blocked', 'scheduled', 'retrying', 'running', 'quarantined')
