-- Takes or renews the lease of maintenance. Returns a row to the leader only. A lease that begins
-- in the future was written by another clock. A lease whose session has ended is free: its worker
-- was killed, or must reconnect before it can continue.
INSERT INTO posthaste.leader AS l (worker, until, pid)
VALUES ($1, clock_timestamp() + $2::bigint::float8 * interval '1 millisecond', pg_backend_pid())
ON CONFLICT (only_row) DO UPDATE
   SET worker = excluded.worker, since = excluded.since, until = excluded.until,
       retention_clock = least(l.retention_clock + interval '1 min', excluded.since),
       pid = excluded.pid,
       is_own = l.worker = excluded.worker AND l.pid = excluded.pid
 WHERE l.worker = excluded.worker OR clock_timestamp() NOT BETWEEN l.since AND l.until
       OR l.is_own AND NOT EXISTS (SELECT FROM pg_stat_get_activity(l.pid))
RETURNING worker
