-- Bare statements: what Postgres itself charges for one row, and for ten million.  The table has
-- the columns that a job has, one index, and nothing that checks, routes or orders.

-- name: schema
CREATE SCHEMA bare;
CREATE TABLE bare.job (
  id           bigint GENERATED ALWAYS AS IDENTITY,
  queue        text NOT NULL DEFAULT 'default',
  name         text NOT NULL,
  priority     integer NOT NULL DEFAULT 0,
  scheduled_at timestamptz NOT NULL DEFAULT now(),
  expires_at   timestamptz,
  enqueued_at  timestamptz NOT NULL DEFAULT now(),
  tag          text NOT NULL DEFAULT '',
  kwargs       jsonb NOT NULL,
  attempt      integer NOT NULL DEFAULT 0,
  max_attempts integer DEFAULT 25
);
CREATE INDEX job_order ON bare.job (queue, priority, id);

-- name: enqueue
INSERT INTO bare.job (name, kwargs) VALUES ($1, $2) RETURNING id;

-- name: bulk
INSERT INTO bare.job (name, kwargs)
SELECT 'bench.noop', jsonb_build_object('n', 1000000 + n)
  FROM (SELECT generate_series(1, $1::bigint) AS n) AS numbers;

-- name: remaining
SELECT count(*) FROM bare.job;
