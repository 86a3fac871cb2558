-- The user's tables with the most dead rows by the server's statistics, and the time of the last
-- vacuum of each.
SELECT pg_catalog.format('%s.%s', t.schemaname, t.relname) AS name, t.n_dead_tup AS dead,
       t.n_live_tup AS live, greatest(t.last_vacuum, t.last_autovacuum) AS vacuumed_at
  FROM pg_catalog.pg_stat_user_tables t
 WHERE t.n_dead_tup > 0::bigint AND t.schemaname <> 'posthaste'
 ORDER BY t.n_dead_tup DESC, t.relid LIMIT 10
