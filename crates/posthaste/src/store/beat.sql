-- Records a heartbeat of a worker, and why its endpoints accept no jobs. Returns the store that
-- received it; no row if the worker was declared dead and must register again.
UPDATE posthaste.worker SET beat = beat + 1, seen_at = clock_timestamp(), last_error = $2::text,
       failing_since = CASE WHEN $2::text IS NOT NULL
                            THEN coalesce(failing_since, clock_timestamp()) END
 WHERE id = $1 AND stopped_at IS NULL RETURNING posthaste.session_identity()
