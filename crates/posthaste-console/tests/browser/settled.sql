-- Names the worker as a deployment would, and returns whether all jobs that can end have ended.
WITH named AS (UPDATE posthaste.worker SET name = 'worker-1' WHERE name <> 'relay-1')
SELECT NOT EXISTS (SELECT FROM posthaste.job WHERE queue = 'mail' AND state = 'available')
