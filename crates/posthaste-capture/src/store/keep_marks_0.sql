-- Copies the newest mark of each capture to the other table.
INSERT INTO posthaste.capture_mark_0
SELECT DISTINCT ON (m.epoch) m.*
  FROM (SELECT * FROM posthaste.capture_mark_0 UNION ALL SELECT * FROM posthaste.capture_mark_1) m
  JOIN posthaste.capture c ON c.epoch = m.epoch
 ORDER BY m.epoch, m.commit DESC, m.record DESC, m.row DESC, m.done DESC
