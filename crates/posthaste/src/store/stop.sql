-- A worker ends; in good order when nothing of it could ever have to be rescued. The worker's word
-- for that ($2) is not enough: on a replica that was promoted, a claim may have arrived and its
-- acknowledgement not. If it leads, another one may at once.
WITH left_office AS (UPDATE posthaste.leader SET until = clock_timestamp() WHERE worker = $1)
UPDATE posthaste.worker SET stopped_at = clock_timestamp(),
       clean = $2 AND NOT EXISTS (SELECT FROM posthaste.open_jobs($1, NULL))
                  AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.worker = $1
                                     AND h.state = 'running')
 WHERE id = $1 AND stopped_at IS NULL
