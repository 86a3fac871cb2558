-- Ends a gap where its capture has started again.
UPDATE posthaste.capture_gap SET ends = $2::text::pg_lsn
 WHERE epoch = $1::uuid AND ends IS NULL
RETURNING id
