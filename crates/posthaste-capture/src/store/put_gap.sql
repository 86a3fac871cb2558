-- Records a gap, once for each time that a capture has lost its position.
INSERT INTO posthaste.capture_gap (epoch, begins, ends, capture, reason, tables)
SELECT $1::uuid, $2::text::pg_lsn, $3::text::pg_lsn, $4, $5, $6
 WHERE $3::text IS NOT NULL OR NOT EXISTS (
   SELECT FROM posthaste.capture_gap g WHERE g.epoch = $1::uuid AND g.ends IS NULL)
