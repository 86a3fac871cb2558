-- Gaps, newest first.
SELECT g.id, g.seen_at, g.accepted_at, g.begins::text, g.ends::text, g.capture, g.reason, g.tables,
       g.accepted_by
  FROM posthaste.capture_gap g
 WHERE $1::text IS NULL OR g.capture = $1::text
 ORDER BY g.id DESC
 LIMIT 1000
