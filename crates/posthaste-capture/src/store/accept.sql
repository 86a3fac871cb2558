-- Acknowledges a gap.
UPDATE posthaste.capture_gap g SET accepted_at = clock_timestamp(), accepted_by = session_user
 WHERE g.id = $1::bigint AND g.accepted_at IS NULL
RETURNING id
