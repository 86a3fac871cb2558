-- How far back each kind of holder keeps rows from being removed, in transactions and in seconds;
-- no row for a kind that holds nothing. Sessions that are hidden from us tell no age.
SELECT holder, max(transactions)::bigint, max(seconds)::double precision FROM (
  SELECT 'transaction', pg_catalog.age(a.backend_xmin),
         extract(epoch FROM clock_timestamp() - a.xact_start)
    FROM pg_catalog.pg_stat_activity a
   WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
     AND a.backend_xmin IS NOT NULL
  UNION ALL
  SELECT 'prepared', pg_catalog.age(p.transaction), extract(epoch FROM clock_timestamp() - p.prepared)
    FROM pg_catalog.pg_prepared_xacts p
  UNION ALL
  SELECT 'slot', greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin)), NULL
    FROM pg_catalog.pg_replication_slots s WHERE coalesce(s.xmin, s.catalog_xmin) IS NOT NULL
  UNION ALL
  SELECT 'replica', pg_catalog.age(r.backend_xmin), NULL
    FROM pg_catalog.pg_stat_replication r WHERE r.backend_xmin IS NOT NULL
) held (holder, transactions, seconds)
 GROUP BY holder ORDER BY holder
