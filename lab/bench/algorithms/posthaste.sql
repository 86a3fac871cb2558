-- posthaste by its public API: `enqueue_many` and `Worker`. These statements only look at it.
-- manner: library

-- name: remaining
SELECT count(*) FROM posthaste.job;
