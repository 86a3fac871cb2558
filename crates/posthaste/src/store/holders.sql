-- Transactions, replication slots and replicas, those that retain the most rows first; transactions
-- is NULL for a session that retains none. Ages are NULL if something began before the clock
-- stepped back, and for slots and replicas. Sessions that this role may not see are omitted.
SELECT h.kind, h.pid, h.name, h.role, h.application, h.address, h.database, h.state, h.is_read,
       h.is_logical, h.is_by_slot,
       CASE WHEN h.seconds >= (-1)::numeric THEN h.seconds::double precision END AS seconds,
       h.transactions::bigint AS transactions, h.is_superuser, h.backend_start,
       h.transaction_start, h.wait_event, h.query
  FROM (
  SELECT 'session' AS kind, a.pid, NULL::text AS name, a.usename::text AS role,
         a.application_name AS application, pg_catalog.host(a.client_addr) AS address,
         a.datname::text AS database, a.state, false AS is_read, false AS is_logical,
         false AS is_by_slot, extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
         greatest(pg_catalog.age(a.backend_xmin), pg_catalog.age(a.backend_xid)) AS transactions,
         coalesce(r.rolsuper, false) AS is_superuser, a.backend_start,
         a.xact_start AS transaction_start, a.wait_event,
         pg_catalog.left(a.query, 2000) AS query
    FROM pg_catalog.pg_stat_activity a
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
   WHERE a.backend_type = 'client backend' AND a.pid <> pg_catalog.pg_backend_pid()
     AND a.xact_start IS NOT NULL
  UNION ALL
  SELECT 'prepared', NULL, p.gid, p.owner::text, NULL, NULL, p.database::text, NULL, false, false,
         false, extract(epoch FROM clock_timestamp() - p.prepared), pg_catalog.age(p.transaction),
         false, NULL, p.prepared, NULL, NULL
    FROM pg_catalog.pg_prepared_xacts p
  UNION ALL
  -- Postgres does not record since when these two hold rows.
  SELECT 'slot', s.active_pid, s.slot_name::text, NULL, NULL, NULL, s.database::text, NULL,
         s.active, s.slot_type = 'logical' AND s.xmin IS NOT NULL, false, NULL,
         greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin)),
         false, NULL, NULL, NULL, NULL
    FROM pg_catalog.pg_replication_slots s
  UNION ALL
  -- A replica with a slot reports its oldest reader there, and by its connection otherwise.
  SELECT 'replica', r.pid, NULL, r.usename::text, r.application_name,
         pg_catalog.host(r.client_addr), NULL, r.state, false, false, r.backend_xmin IS NULL, NULL,
         pg_catalog.age(coalesce(r.backend_xmin, s.xmin)), false, r.backend_start, NULL, NULL, NULL
    FROM pg_catalog.pg_stat_replication r
    LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid) h
 ORDER BY h.transactions DESC NULLS LAST, h.seconds DESC NULLS LAST LIMIT 5000
