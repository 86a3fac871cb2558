-- Heartbeats of all workers, those included that stopped in the last day and not in good order: a
-- claim of theirs may have committed after they were rescued, or a job of theirs may have been in
-- somebody's open transaction.
SELECT id, beat, stopped_at IS NOT NULL AS stopped FROM posthaste.worker
 WHERE stopped_at IS NULL
    OR (NOT clean AND stopped_at > posthaste.retention_clock() - interval '1 day')
