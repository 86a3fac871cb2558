-- posthaste by its public API: `enqueue_many` and `Worker`. Its own statements only park and count jobs.
-- manner: library

-- name: park
INSERT INTO posthaste.job (name, queue, scheduled_at, kwargs)
SELECT 'parked', 'parked', now() + interval '1 year', '{}' FROM generate_series(1, :limit::bigint);

-- name: remaining
SELECT count(*) FROM posthaste.job WHERE queue <> 'parked';
