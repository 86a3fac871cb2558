-- The next jobs of a queue; see posthaste.claim in migrations/0003_claim.sql. A row without an id comes last when the claim is to be followed by another
-- after so many milliseconds.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, crashes, name, tag, unique_key, ordering_key, kwargs
  FROM posthaste.claim($1, $2, $3, $4, $5, $6)
