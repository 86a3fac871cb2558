-- Heartbeats of all workers, including those that stopped uncleanly within the last day: one of
-- their claims may have committed after their rescue, or an open transaction may have had one of
-- their jobs.
SELECT id, beat, stopped_at IS NOT NULL AS stopped FROM posthaste.worker
 WHERE stopped_at IS NULL
    OR (NOT clean AND stopped_at > posthaste.retention_clock() - interval '1 day')
