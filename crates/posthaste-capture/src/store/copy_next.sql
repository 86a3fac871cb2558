-- Whether a capture is paused, and the copy that it continues.
SELECT c.paused_at IS NOT NULL AS is_paused, p.id, p.schema_name, p.table_name, p.filter, p.after
  FROM posthaste.capture c
  LEFT JOIN LATERAL (
    SELECT p.* FROM posthaste.capture_copy p
     WHERE p.capture = c.name AND p.ended_at IS NULL AND p.problem IS NULL
     ORDER BY p.id LIMIT 1) p ON true
 WHERE c.name = $1::text
