-- The jobs of a committed claim, or those with these ids, with the columns of claim.sql.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts,
       crashes, name, tag, unique_key, ordering_key, trace, kwargs
  FROM posthaste.claimed_jobs($1, $2, $3, $4, $5)
