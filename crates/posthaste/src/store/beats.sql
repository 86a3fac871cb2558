-- Heartbeats of all workers, those included that stopped lately: a claim of theirs may have committed after they were rescued.
SELECT id, beat, stopped_at IS NOT NULL AS stopped FROM posthaste.worker
 WHERE stopped_at IS NULL OR stopped_at > clock_timestamp() - interval '10 minutes'
