-- Cancels the running copy of a table.
UPDATE posthaste.capture_copy SET ended_at = clock_timestamp(), is_cancelled = true
 WHERE capture = $1::text AND schema_name = $2::text AND table_name = $3::text AND ended_at IS NULL
RETURNING id
