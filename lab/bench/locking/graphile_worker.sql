-- What a program does that has a job for graphile-worker; the library makes its own schema.

-- name: enqueue
SELECT graphile_worker.add_job('noop', json_build_object('n', $1::bigint));
