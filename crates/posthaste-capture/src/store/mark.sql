-- The newest mark. The caller has locked both tables, so that no mark is copied between them
-- meanwhile.
SELECT m.done::text, m.commit::text, m.record::text, m.row, m.events, m.bytes
  FROM (SELECT * FROM posthaste.capture_mark_0 UNION ALL SELECT * FROM posthaste.capture_mark_1) m
 WHERE m.epoch = $1::uuid
 ORDER BY m.commit DESC, m.record DESC, m.row DESC, m.done DESC
 LIMIT 1
