-- Pauses or resumes a capture; no row if it does not exist.
WITH was AS (SELECT c.name, c.paused_at IS NOT NULL AS is_paused FROM posthaste.capture c
              WHERE c.name = $1::text FOR UPDATE),
     done AS (UPDATE posthaste.capture c
                 SET paused_at = CASE WHEN $2::boolean THEN clock_timestamp() END
                FROM was WHERE c.name = was.name AND was.is_paused <> $2::boolean)
SELECT was.is_paused <> $2::boolean AS is_changed FROM was
