-- One job whose worker died, to be run alone.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts,
       crashes, name, tag, unique_key, ordering_key, trace, kwargs
  FROM posthaste.claim_quarantined($1, $2, $3)
