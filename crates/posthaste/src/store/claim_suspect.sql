-- One job whose worker died, to be run alone.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, crashes, name, tag, unique_key, ordering_key, kwargs
  FROM posthaste.claim_suspect($1, $2, $3)
