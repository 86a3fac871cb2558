-- The plain queue table: one partial index over what waits, an UPDATE under SKIP LOCKED to claim,
-- a DELETE to complete.  Autovacuum is told to hurry, as anybody who runs such a table learns to
-- do.

-- name: schema
CREATE SCHEMA skip_locked;
CREATE TABLE skip_locked.job (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  state        smallint NOT NULL DEFAULT 0,   -- 0 waiting, 1 running
  priority     integer NOT NULL DEFAULT 0,
  attempt      smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL DEFAULT 25,
  scheduled_at timestamptz NOT NULL DEFAULT now(),
  lease_until  timestamptz,
  expires_at   timestamptz,
  enqueued_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  queue        text NOT NULL DEFAULT 'default',
  name         text NOT NULL,
  kwargs       jsonb NOT NULL
) WITH (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX job_claim ON skip_locked.job (queue, priority, scheduled_at, id) WHERE state = 0;

-- name: preload
INSERT INTO skip_locked.job (name, kwargs)
SELECT 'bench.noop', jsonb_build_object('n', 1000000 + n) FROM generate_series(1, $1::bigint) AS n;

-- The vacuum sets hint bits and gathers statistics, so that no reader pays for the preload.
-- name: settle
VACUUM (ANALYZE) skip_locked.job;

-- name: claim
UPDATE skip_locked.job AS job
SET state = 1, attempt = job.attempt + 1, lease_until = now() + interval '60 s'
FROM (
  SELECT id FROM skip_locked.job
  WHERE state = 0 AND queue = $1 AND scheduled_at <= now()
  ORDER BY queue, priority, scheduled_at, id
  LIMIT $2::bigint
  FOR UPDATE SKIP LOCKED
) AS picked
WHERE job.id = picked.id
RETURNING job.id, job.name, job.kwargs, job.attempt, job.enqueued_at;

-- name: complete
DELETE FROM skip_locked.job WHERE id = ANY ($1::bigint[]);

-- name: remaining
SELECT count(*) FROM skip_locked.job;

-- name: enqueue
INSERT INTO skip_locked.job (name, kwargs) VALUES ($1, $2) RETURNING id;
