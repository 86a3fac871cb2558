-- Takes or keeps the lease of maintenance; a row comes back to the leader only.
INSERT INTO posthaste.leader AS l (worker, until) VALUES ($1, clock_timestamp() + $2::bigint * interval '1 millisecond')
ON CONFLICT (only_row) DO UPDATE SET worker = excluded.worker, until = excluded.until
 WHERE l.worker = excluded.worker OR l.until < clock_timestamp()
RETURNING worker
