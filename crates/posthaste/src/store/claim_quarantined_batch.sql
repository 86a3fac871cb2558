-- Jobs whose worker died once, and for which a counted attempt ends nothing: to be run together,
-- and alone but for each other.
UPDATE posthaste.in_flight h SET state = 'running', worker = $2, token = $3
 WHERE h.id = ANY (ARRAY(SELECT s.id FROM posthaste.in_flight s
                          WHERE s.state = 'quarantined' AND s.queue = $1
                            AND s.until <= clock_timestamp() AND s.expires_at > clock_timestamp()
                            AND s.crashes = 1 AND s.max_attempts IS NULL
                          ORDER BY s.until, s.id LIMIT $4 FOR UPDATE SKIP LOCKED))
   AND EXISTS (SELECT FROM posthaste.worker w WHERE w.id = $2 AND w.stopped_at IS NULL
                     AND w.identity = posthaste.session_identity())
   AND NOT EXISTS (SELECT FROM posthaste.queue q WHERE q.name = $1 AND q.paused_at IS NOT NULL)
RETURNING (-1)::smallint, 0::bigint, id, enqueued_at, scheduled_at, expires_at, priority, attempt,
          max_attempts, crashes, name, tag, unique_key, ordering_key, trace, kwargs
