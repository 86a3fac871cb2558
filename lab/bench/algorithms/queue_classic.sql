-- Queue Classic 3: a random one of the first nine jobs that nobody has, locked without waiting,
-- then marked by an UPDATE. Left out: the chunked notifications and the retries.
-- manner: one

-- name: schema
CREATE TABLE job (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue     text NOT NULL DEFAULT '',
  args      jsonb NOT NULL,
  run_at    timestamptz NOT NULL DEFAULT now(),
  locked_at timestamptz,
  locked_by integer
);
CREATE INDEX job_order ON job (queue, id) WHERE locked_at IS NULL;
CREATE FUNCTION claim_head() RETURNS SETOF job LANGUAGE plpgsql AS $$
DECLARE
  place integer;
  head  bigint;
BEGIN
  SELECT CASE WHEN count(*) < 9 THEN 0 ELSE trunc(random() * 8) END INTO place
  FROM (SELECT FROM job WHERE locked_at IS NULL AND queue = '' LIMIT 9) AS first;
  LOOP
    BEGIN
      SELECT id INTO head FROM job
      WHERE locked_at IS NULL AND queue = '' AND run_at <= now()
      ORDER BY id OFFSET place LIMIT 1
      FOR UPDATE NOWAIT;
      EXIT;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN QUERY
  UPDATE job SET locked_at = now(), locked_by = pg_backend_pid()
  WHERE id = head AND locked_at IS NULL
  RETURNING *;
END $$;

-- name: enqueue
INSERT INTO job (args) VALUES (:args);

-- name: claim
SELECT id, args FROM claim_head();

-- name: finish
DELETE FROM job WHERE id = :id;

-- Jobs of workers that have gone.
-- name: rescue
-- every: 5s
UPDATE job SET locked_at = NULL, locked_by = NULL
WHERE locked_at IS NOT NULL AND locked_by NOT IN (SELECT pid FROM pg_stat_activity);

-- name: schedule
INSERT INTO job (args, run_at)
SELECT '{}', now() + interval '1 year'
FROM generate_series(1, :limit::bigint);

-- name: remaining
SELECT count(*) FROM job WHERE run_at <= now();
