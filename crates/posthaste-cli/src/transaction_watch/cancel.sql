-- Cancels the statement of this transaction only: a pid may belong to another session by now, and
-- the session to another transaction.
SELECT pg_catalog.pg_cancel_backend(a.pid) AS is_signalled
  FROM pg_catalog.pg_stat_activity a
 WHERE a.pid = $1 AND a.backend_start = $2 AND a.xact_start = $3
   AND a.backend_type = 'client backend' AND a.state = 'active'
   AND a.pid <> pg_catalog.pg_backend_pid();
