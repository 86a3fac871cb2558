-- Deregisters a worker; clean if none of its jobs may have to be rescued. The worker's own
-- statement ($2) is not sufficient: a promoted replica may have a claim without its
-- acknowledgement. If the worker leads, another may take over at once.
WITH left_office AS (UPDATE posthaste.leader SET until = clock_timestamp() WHERE worker = $1)
UPDATE posthaste.worker SET stopped_at = clock_timestamp(),
       clean = $2 AND NOT EXISTS (SELECT FROM posthaste.open_jobs($1, NULL))
                  AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.worker = $1
                                     AND h.state = 'running')
 WHERE id = $1 AND stopped_at IS NULL
