-- Que with the patch of the article: a worker passes over the ids up to its last one, and forgets
-- it once a minute, so that jobs with a lower id are not left for ever. The id comes after
-- `priority` and `run_at` in the key: Postgres reads every index entry and spares only the rows.
-- manner: one

-- name: schema
CREATE TABLE job (
  queue    text NOT NULL DEFAULT '',
  priority integer NOT NULL DEFAULT 100,
  run_at   timestamptz NOT NULL DEFAULT now(),
  id       bigint GENERATED ALWAYS AS IDENTITY,
  args     jsonb NOT NULL,
  PRIMARY KEY (queue, priority, run_at, id)
);

-- name: enqueue
INSERT INTO job (args) VALUES (:args);

-- name: claim
WITH RECURSIVE jobs AS (
  SELECT (j).*, pg_try_advisory_lock((j).id) AS locked
  FROM (
    SELECT j FROM job AS j WHERE queue = '' AND run_at <= now()
      AND id > :last_id
    ORDER BY priority, run_at, id LIMIT 1
  ) AS first
  UNION ALL (
    SELECT (j).*, pg_try_advisory_lock((j).id) AS locked
    FROM (
      SELECT (
        SELECT j FROM job AS j
        WHERE queue = '' AND run_at <= now()
          AND id > :last_id
          AND (priority, run_at, id) > (jobs.priority, jobs.run_at, jobs.id)
        ORDER BY priority, run_at, id LIMIT 1
      ) AS j
      FROM jobs WHERE jobs.id IS NOT NULL LIMIT 1
    ) AS next
  )
)
SELECT id, args, priority, run_at FROM jobs WHERE locked LIMIT 1;

-- Another worker may have finished the job after this claim's snapshot was taken.
-- name: check
SELECT 1 FROM job
WHERE queue = '' AND priority = :priority AND run_at = :run_at AND id = :id;

-- name: finish
DELETE FROM job WHERE queue = '' AND priority = :priority AND run_at = :run_at AND id = :id;

-- name: release
SELECT pg_advisory_unlock(:id);

-- name: schedule
INSERT INTO job (args, run_at)
SELECT '{}', now() + interval '1 year'
FROM generate_series(1, :limit::bigint);

-- name: remaining
SELECT count(*) FROM job WHERE run_at <= now();
