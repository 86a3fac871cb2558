-- The next jobs of a queue; see posthaste.claim in migrations/0003_claim.sql. A row without an id comes last when the claim is to be followed by another
-- after so many milliseconds.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, crashes, name, tag, unique_key, ordering_key, kwargs
  FROM posthaste.claim($1, $2, $3, $4, $5, $6)
UNION ALL
SELECT NULL, split_part(m.said, ' ', 2)::bigint, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT current_setting('posthaste.more', true) AS said OFFSET 0) m
 WHERE split_part(m.said, ' ', 1) = $4::uuid::text
