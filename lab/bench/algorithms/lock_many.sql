-- The same as skip_locked with many jobs per claim, worked one after the other: the cost of a claim
-- is divided among them, and a slow job delays those after it.
-- manner: batch in a transaction

-- name: schema
CREATE TABLE job (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue    text NOT NULL DEFAULT '',
  priority integer NOT NULL DEFAULT 100,
  run_at   timestamptz NOT NULL DEFAULT now(),
  args     jsonb NOT NULL
);
CREATE INDEX job_order ON job (queue, priority, run_at, id);

-- name: enqueue
INSERT INTO job (args) VALUES (:args);

-- name: claim
SELECT id, args FROM job
WHERE queue = '' AND run_at <= now()
ORDER BY priority, run_at, id LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: finish
DELETE FROM job WHERE id = ANY (:ids);

-- name: schedule
INSERT INTO job (args, run_at)
SELECT '{}', now() + interval '1 year'
FROM generate_series(1, :limit::bigint);

-- name: remaining
SELECT count(*) FROM job WHERE run_at <= now();
