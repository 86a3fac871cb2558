-- Failed attempts of a job, the first of them first.
SELECT attempt, at, outcome, worker, worker_name, error FROM posthaste.attempt WHERE job = $1 ORDER BY at, attempt
