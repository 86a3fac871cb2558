-- Claims the next jobs of a queue (posthaste.claim in sql/functions/claim.sql), and returns those
-- that fit into a short answer. claimed_jobs.sql reads the batch of a row without an id but with a
-- slot. A last row without both: claim again after this many milliseconds.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts,
       crashes, name, tag, unique_key, ordering_key, trace, kwargs
  FROM posthaste.claim($1, $2, $3, $4, $5, $6, $7)
 WHERE posthaste.begin_single_statement()
