-- What the server says of itself, and whether the schema is there.
SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS version_name,
       current_setting('fsync') = 'on' AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('max_prepared_transactions')::integer AS max_prepared, pg_is_in_recovery() AS is_replica,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock, current_user::text AS me,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_sessions,
       (SELECT coalesce(array_agg(r ORDER BY r), '{}') FROM unnest(ARRAY['posthaste_observer', 'posthaste_producer', 'posthaste_worker']) r
         WHERE NOT EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r)) AS roles_missing
