-- Whether this server is a follower, whether its readers hold rows on the primary, the tables of
-- this database with the most dead rows, and the followers that stream from here.
SELECT pg_catalog.pg_is_in_recovery() AS is_follower,
       pg_catalog.current_setting('hot_standby_feedback')::boolean AS has_feedback,
       pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AS sees_sessions,
       ARRAY(SELECT pg_catalog.format('%s dead rows in %I.%I', t.n_dead_tup, t.schemaname,
                                      t.relname)
               FROM pg_catalog.pg_stat_all_tables t
              WHERE t.n_dead_tup >= 1000 AND t.schemaname <> 'pg_toast'
              ORDER BY t.n_dead_tup DESC LIMIT 5) AS dead_rows,
       (SELECT count(*) FROM pg_catalog.pg_stat_replication r
          LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
         WHERE s.slot_type IS DISTINCT FROM 'logical' AND r.state = 'streaming') AS followers;
