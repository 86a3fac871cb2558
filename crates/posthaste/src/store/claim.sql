-- The next jobs of a queue, those that fit in a short answer; see posthaste.claim in
-- sql/functions/claim.sql. A row without an id but with a slot stands for a batch that is to be
-- read by claimed_jobs.sql. A row without both comes last when the claim is to be followed by
-- another after this many milliseconds.
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts,
       crashes, name, tag, unique_key, ordering_key, trace, kwargs
  FROM posthaste.claim($1, $2, $3, $4, $5, $6, $7)
 WHERE posthaste.begin_single_statement()
