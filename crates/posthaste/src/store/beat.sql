-- A worker lives, why its endpoints accept no jobs, and which store its heartbeat came to. No row:
-- it was declared dead and must take a new id.
UPDATE posthaste.worker SET beat = beat + 1, seen_at = clock_timestamp(), last_error = $2::text,
       failing_since = CASE WHEN $2::text IS NOT NULL
                            THEN coalesce(failing_since, clock_timestamp()) END
 WHERE id = $1 AND stopped_at IS NULL RETURNING posthaste.session_identity()
