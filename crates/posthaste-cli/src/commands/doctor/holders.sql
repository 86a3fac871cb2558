-- Who has been in the way for longer than so many seconds: kind, name, seconds.
SELECT kind, name, floor(seconds)::bigint AS seconds FROM (
  SELECT DISTINCT 'lock' AS kind, format('session %s (%s, %s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), 'no name')) AS name,
         extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     AND c.relnamespace = to_regnamespace('posthaste') AND c.relname ~ '_[0-7]$'
  UNION ALL
  SELECT 'transaction', format('session %s (%s, %s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), 'no name')),
         extract(epoch FROM clock_timestamp() - a.xact_start)
    FROM pg_stat_activity a
   WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
  UNION ALL
  SELECT 'prepared', format('%s in database %s', p.gid, p.database), extract(epoch FROM clock_timestamp() - p.prepared) FROM pg_prepared_xacts p
  UNION ALL
  -- Nobody says since when; that it is so is enough.
  SELECT 'slot', s.slot_name || CASE WHEN s.active THEN '' ELSE ', which nobody reads' END, NULL
    FROM pg_replication_slots s WHERE s.xmin IS NOT NULL OR NOT s.active
  UNION ALL
  SELECT 'replica', coalesce(nullif(r.application_name, ''), r.pid::text), NULL FROM pg_stat_replication r WHERE r.backend_xmin IS NOT NULL
) held
 WHERE seconds IS NULL OR seconds >= $1
 ORDER BY kind, seconds DESC, name
