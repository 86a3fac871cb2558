-- Who keeps vacuum from removing dead rows, the oldest first: how many transactions ago it began to
-- look, and for how many seconds, where that is known.
SELECT h.kind, h.name, h.detail, h.seconds::double precision AS seconds, h.behind::bigint AS behind
  FROM (
  SELECT 'session' AS kind, pg_catalog.format('pid %s', a.pid) AS name,
         pg_catalog.format('%s from %s, %s', a.usename,
                           coalesce(pg_catalog.host(a.client_addr), 'this machine'),
                           coalesce(nullif(a.state, ''), 'unknown')) AS detail,
         extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
         greatest(pg_catalog.age(a.backend_xmin), pg_catalog.age(a.backend_xid)) AS behind
    FROM pg_catalog.pg_stat_activity a
   WHERE a.backend_type = 'client backend' AND a.pid <> pg_catalog.pg_backend_pid()
  UNION ALL
  SELECT 'prepared', p.gid, pg_catalog.format('of %s in database %s', p.owner, p.database),
         extract(epoch FROM clock_timestamp() - p.prepared), pg_catalog.age(p.transaction)
    FROM pg_catalog.pg_prepared_xacts p
  UNION ALL
  SELECT 'slot', s.slot_name::text, CASE WHEN s.active THEN 'read' ELSE 'read by nobody' END, NULL,
         greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin))
    FROM pg_catalog.pg_replication_slots s
  UNION ALL
  SELECT 'replica', coalesce(nullif(r.application_name, ''), 'a replica'),
         pg_catalog.format('from %s', coalesce(pg_catalog.host(r.client_addr), 'this machine')),
         NULL, pg_catalog.age(r.backend_xmin)
    FROM pg_catalog.pg_stat_replication r) h
 WHERE h.behind IS NOT NULL AND (h.seconds IS NULL OR h.seconds > 1::numeric)
 ORDER BY h.behind DESC, h.seconds DESC NULLS LAST LIMIT 5
