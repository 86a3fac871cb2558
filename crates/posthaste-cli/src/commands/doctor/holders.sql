-- Who has been in the way for longer than this many seconds: kind, name, seconds. Whose age is
-- hidden from us is left out: claims lock in passing.
SELECT kind, name, floor(seconds)::bigint AS seconds FROM (
  SELECT DISTINCT 'lock' AS kind,
         pg_catalog.format('session %s (%s, %s)', a.pid, a.usename,
                           coalesce(nullif(a.application_name, ''), 'no name')) AS name,
         extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     AND c.relnamespace = to_regnamespace('posthaste')::oid
     AND c.relname ~ '_[0-7]$'::text
  UNION ALL
  SELECT 'transaction',
         pg_catalog.format('session %s (%s, %s)', a.pid, a.usename,
                           coalesce(nullif(a.application_name, ''), 'no name')),
         extract(epoch FROM clock_timestamp() - a.xact_start)
    FROM pg_stat_activity a
   WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
  UNION ALL
  SELECT 'prepared', pg_catalog.format('%s in database %s', p.gid, p.database),
         extract(epoch FROM clock_timestamp() - p.prepared) FROM pg_prepared_xacts p
  UNION ALL
  -- Of these two nobody says since when; that it is so is enough.
  SELECT 'slot', s.slot_name::text || CASE WHEN s.active THEN '' ELSE ', which nobody reads' END,
         NULL
    FROM pg_replication_slots s WHERE NOT s.active OR (s.slot_type = 'logical' AND s.xmin IS NOT NULL)
  UNION ALL
  -- A replica with hot_standby_feedback tells how far back its readers look: the slot that it reads keeps it, else its connection. One that
  -- nobody reads tells the present every ten seconds (wal_receiver_status_interval), so it is behind too, by as many transactions as came since.
  SELECT 'replica',
         pg_catalog.format('%s (%s)', coalesce(nullif(r.application_name, ''), 'no name'),
                           coalesce(host(r.client_addr), 'this machine')), NULL
    FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid
   WHERE age(coalesce(r.backend_xmin, s.xmin)) > 10000
) held
 WHERE seconds::double precision >= $1::double precision OR kind IN ('slot', 'replica')
 ORDER BY kind, seconds DESC, name
