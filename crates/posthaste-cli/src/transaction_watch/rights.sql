-- The rights that this role lacks to act and to record actions.
SELECT pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')
         OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r
              WHERE r.rolname = current_user) AS may_signal,
       CASE WHEN pg_catalog.has_schema_privilege(
                   pg_catalog.to_regnamespace('posthaste')::oid, 'USAGE')
            THEN coalesce(pg_catalog.has_table_privilege(
                   pg_catalog.to_regclass('posthaste.txwatch_action')::oid, 'INSERT'), false)
            ELSE false END AS may_record,
       pg_catalog.pg_is_in_recovery() AS is_follower;
