-- What nobody captured, once for each time that a capture lost its place.
INSERT INTO posthaste.capture_gap (epoch, begins, ends, capture, reason, tables)
SELECT $1::uuid, $2::text::pg_lsn, $3::text::pg_lsn, $4, $5, $6
 WHERE $3::text IS NOT NULL OR NOT EXISTS (
   SELECT FROM posthaste.capture_gap g WHERE g.epoch = $1::uuid AND g.ends IS NULL)
