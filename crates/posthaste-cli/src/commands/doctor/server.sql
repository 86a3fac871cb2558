-- What the server says of itself, and whether the schema is there.
SELECT current_setting('server_version_num')::integer AS version,
       current_setting('server_version') AS version_name,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('max_prepared_transactions')::integer AS max_prepared,
       pg_is_in_recovery() AS is_replica,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE (pg_notification_queue_usage() * 100::float8)::integer END AS notifications,
       (extract(epoch FROM clock_timestamp()) * 1000::numeric)::bigint AS clock,
       current_user::text AS me, current_setting('server_encoding') AS encoding,
       pg_has_role('pg_read_all_stats'::name, 'USAGE') AS sees_sessions,
       (SELECT coalesce(pg_catalog.array_agg(r ORDER BY r), '{}')
          FROM pg_catalog.unnest(
                 ARRAY['posthaste_observer', 'posthaste_producer', 'posthaste_worker']) r
         WHERE NOT EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r)) AS roles_missing,
       (SELECT coalesce(pg_catalog.array_agg(n.nspname::text ORDER BY n.nspname), '{}')
          FROM pg_namespace n
         WHERE n.nspname = ANY (current_schemas(false))
           AND has_schema_privilege('public'::name, n.oid, 'CREATE')) AS open_schemas
