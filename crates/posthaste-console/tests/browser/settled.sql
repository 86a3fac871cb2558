-- Names its worker as a deployment would, and says whether all are done that can be.
WITH named AS (UPDATE posthaste.worker SET name = 'worker-1' WHERE name <> 'relay-1')
SELECT NOT EXISTS (SELECT FROM posthaste.job WHERE queue = 'mail' AND state = 'available')
