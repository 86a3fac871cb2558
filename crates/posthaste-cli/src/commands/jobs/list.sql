-- Jobs that are not done, the newest first; a condition that is NULL is none.
SELECT id, name, queue, priority, state, attempt, max_attempts, scheduled_at, tag, last_error
  FROM posthaste.job
 WHERE ($1::text IS NULL OR queue = $1) AND ($2::text IS NULL OR name = $2) AND ($3::text IS NULL OR tag = $3)
   AND ($4::text IS NULL OR state = $4) AND ($5::text IS NULL OR last_error LIKE $5)
 ORDER BY id DESC LIMIT $6
