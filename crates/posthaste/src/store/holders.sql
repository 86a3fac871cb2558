-- Who keeps rows from being removed, however briefly: sessions with a transaction, prepared
-- transactions, replication slots, and replicas with hot_standby_feedback. How many transactions
-- ago each began to look, and for how many seconds, where that is known: it is not where one began
-- before the clock went back. Sessions that are hidden from us tell neither, and are left out.
SELECT h.kind, h.pid, h.name, h.role, h.application, h.address, h.database, h.state, h.is_read,
       h.is_logical, h.is_by_slot,
       CASE WHEN h.seconds >= (-1)::numeric THEN h.seconds::double precision END AS seconds,
       h.transactions::bigint AS transactions
  FROM (
  SELECT 'session' AS kind, a.pid, NULL::text AS name, a.usename::text AS role,
         a.application_name AS application, pg_catalog.host(a.client_addr) AS address,
         a.datname::text AS database, a.state, false AS is_read, false AS is_logical,
         false AS is_by_slot, extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
         greatest(pg_catalog.age(a.backend_xmin), pg_catalog.age(a.backend_xid)) AS transactions
    FROM pg_catalog.pg_stat_activity a
   WHERE a.backend_type = 'client backend' AND a.pid <> pg_catalog.pg_backend_pid()
     AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
  UNION ALL
  SELECT 'prepared', NULL, p.gid, p.owner::text, NULL, NULL, p.database::text, NULL, false, false,
         false, extract(epoch FROM clock_timestamp() - p.prepared), pg_catalog.age(p.transaction)
    FROM pg_catalog.pg_prepared_xacts p
  UNION ALL
  -- Of these two nobody says since when.
  SELECT 'slot', s.active_pid, s.slot_name::text, NULL, NULL, NULL, s.database::text, NULL,
         s.active, s.slot_type = 'logical' AND s.xmin IS NOT NULL, false, NULL,
         greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin))
    FROM pg_catalog.pg_replication_slots s
  UNION ALL
  -- The slot that a replica reads keeps how far back its readers look, else its connection does.
  SELECT 'replica', r.pid, NULL, r.usename::text, r.application_name,
         pg_catalog.host(r.client_addr), NULL, r.state, false, false, r.backend_xmin IS NULL, NULL,
         pg_catalog.age(coalesce(r.backend_xmin, s.xmin))
    FROM pg_catalog.pg_stat_replication r
    LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid) h
 ORDER BY h.transactions DESC NULLS LAST, h.seconds DESC NULLS LAST LIMIT 5000
