-- A worker lives, and which store its heartbeat came to. No row: it was declared dead and must take
-- a new id.
UPDATE posthaste.worker SET beat = beat + 1, seen_at = clock_timestamp()
 WHERE id = $1 AND stopped_at IS NULL RETURNING posthaste.session_identity()
