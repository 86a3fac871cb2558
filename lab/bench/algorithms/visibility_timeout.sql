-- pgmq: a claim moves the time at which a message is visible again; finishing deletes it.
-- Left out: the archive, and everything that is a queue rather than a message.
-- manner: batch

-- name: schema
CREATE TABLE job (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  vt      timestamptz NOT NULL DEFAULT clock_timestamp(),
  read_ct integer NOT NULL DEFAULT 0,
  args    jsonb NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX job_vt ON job (vt);

-- name: enqueue
INSERT INTO job (args) VALUES (:args);

-- name: claim
UPDATE job SET vt = clock_timestamp() + make_interval(secs => :lease), read_ct = read_ct + 1
WHERE id IN (
  SELECT id FROM job WHERE vt <= clock_timestamp()
  ORDER BY id LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
RETURNING id, args;

-- name: finish
DELETE FROM job WHERE id = ANY (:ids);

-- name: schedule
INSERT INTO job (args, vt)
SELECT '{}', now() + interval '1 year'
FROM generate_series(1, :limit::bigint);

-- name: remaining
SELECT count(*) FROM job WHERE vt < now() + interval '1 month';
