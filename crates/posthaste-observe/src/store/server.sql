-- Settings and properties of the server and of this session; needs no schema of posthaste.
SELECT current_database()::text AS database,
       current_setting('server_version_num')::integer AS version_number,
       current_setting('server_version') AS version, pg_is_in_recovery() AS is_replica,
       clock_timestamp() AS at, current_user::text AS role,
       pg_has_role('pg_read_all_stats'::name, 'USAGE') AS sees_sessions,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('max_prepared_transactions')::integer AS max_prepared_transactions,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE (pg_notification_queue_usage() * 100::float8)::integer END AS notifications,
       current_setting('server_encoding') AS encoding,
       (SELECT p.name FROM (VALUES
            (1, 'Neon', current_setting('neon.timeline_id'::text, true) IS NOT NULL),
            (2, 'Supabase', EXISTS (SELECT FROM pg_roles WHERE rolname = 'supabase_admin')),
            (3, 'Amazon Aurora', to_regproc('pg_catalog.aurora_version'::text) IS NOT NULL),
            (4, 'Amazon RDS', EXISTS (SELECT FROM pg_roles WHERE rolname = 'rdsadmin')),
            (5, 'AlloyDB', EXISTS (SELECT FROM pg_roles WHERE rolname = 'alloydbsuperuser')),
            (6, 'Cloud SQL', EXISTS (SELECT FROM pg_roles WHERE rolname = 'cloudsqlsuperuser')),
            (7, 'Azure Database for PostgreSQL',
             EXISTS (SELECT FROM pg_roles WHERE rolname IN ('azure_pg_admin', 'azuresu')))
          ) p (place, name, is_it) WHERE p.is_it ORDER BY p.place LIMIT 1) AS platform,
       (SELECT coalesce(pg_catalog.array_agg(r ORDER BY r), '{}')
          FROM pg_catalog.unnest(
                 ARRAY['posthaste_observer', 'posthaste_producer', 'posthaste_worker']) r
         WHERE NOT EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r)) AS missing_roles,
       (SELECT coalesce(pg_catalog.array_agg(n.nspname::text ORDER BY n.nspname), '{}')
          FROM pg_namespace n
         WHERE n.nspname = ANY (current_schemas(false))
           AND has_schema_privilege('public'::name, n.oid, 'CREATE')) AS open_schemas
