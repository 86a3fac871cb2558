-- Copies, newest first.
SELECT p.id, p.begun_at, p.ended_at, p.rows, p.expected, p.is_cancelled, p.capture,
       p.schema_name || '.'::text || p.table_name AS table_name, p.filter, p.problem
  FROM posthaste.capture_copy p
 WHERE $1::text IS NULL OR p.capture = $1::text
 ORDER BY p.id DESC
 LIMIT 1000
