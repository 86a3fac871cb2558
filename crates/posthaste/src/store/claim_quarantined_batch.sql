-- Claims jobs whose worker died once and whose attempts are not limited, to run them together and
-- apart from all others. Returns their number; claimed_jobs.sql reads them.
WITH taken AS (
  UPDATE posthaste.in_flight h SET state = 'running', worker = $2, token = $3
   WHERE h.id = ANY (ARRAY(SELECT s.id FROM posthaste.in_flight s
                            WHERE s.state = 'quarantined' AND s.queue = $1
                              AND s.until <= clock_timestamp() AND s.expires_at > clock_timestamp()
                              AND s.crashes = 1 AND s.max_attempts IS NULL
                            ORDER BY s.until, s.id LIMIT $4 FOR UPDATE SKIP LOCKED))
     AND EXISTS (SELECT FROM posthaste.worker w WHERE w.id = $2 AND w.stopped_at IS NULL
                       AND w.identity = posthaste.session_identity())
     AND NOT EXISTS (SELECT FROM posthaste.queue q WHERE q.name = $1 AND q.paused_at IS NOT NULL)
  RETURNING 1)
SELECT count(*) FROM taken
