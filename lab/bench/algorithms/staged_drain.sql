-- The transactionally staged job drain: one session moves staged jobs to Redis in batches of 1,000,
-- and workers take them from there. Left out: the lock that keeps a second drain away.
-- manner: drain

-- name: schema
CREATE TABLE staged (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run_at timestamptz NOT NULL DEFAULT now(),
  args   jsonb NOT NULL
);

-- name: enqueue
INSERT INTO staged (args) VALUES (:args);

-- name: claim
SELECT id, args FROM staged ORDER BY id LIMIT 1000;

-- A transaction that committed meanwhile may have brought lower ids: `id <= last` would lose them.
-- name: finish
DELETE FROM staged WHERE id = ANY (:ids);

-- name: remaining
SELECT count(*) FROM staged;
