-- The answer of a claim once more, for a worker that lost it; the columns are those of claim.sql.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts,
       crashes, name, tag, unique_key, ordering_key, trace, kwargs
  FROM posthaste.claim_answer($1, $2, $3, $4)
