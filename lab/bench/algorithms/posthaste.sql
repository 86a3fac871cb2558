-- posthaste by its public API: `enqueue_many` and `Worker`. Of these statements
-- one schedules jobs and one counts them.
-- manner: library

-- name: schedule
INSERT INTO posthaste.job (name, queue, scheduled_at, kwargs)
SELECT 'later', 'later', now() + interval '1 year', '{}' FROM generate_series(1, :limit::bigint);

-- name: remaining
SELECT count(*) FROM posthaste.job WHERE queue <> 'later';
