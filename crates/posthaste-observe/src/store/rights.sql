-- The rights of the current user, and the rights from `migrate --roles` that the roles lack.
WITH c AS (
  SELECT c.oid, c.relname, c.relkind, c.relkind = 'r' AND c.relname ~ '_[0-7]$'::text AS is_slot,
         c.relname IN ('job', 'store') AS is_entered
    FROM pg_class c WHERE c.relnamespace = to_regnamespace('posthaste')::oid)
SELECT has_schema_privilege('posthaste', 'USAGE') AS may_look,
       has_schema_privilege('posthaste', 'USAGE')
         AND coalesce((SELECT has_table_privilege(c.oid, 'SELECT') FROM c
                        WHERE c.relname = 'synced'),
                      false) AS may_look_at_synced,
       coalesce((SELECT bool_and(has_any_column_privilege(c.oid, 'INSERT')) FROM c
                  WHERE c.is_entered), false)
         AND coalesce((SELECT bool_and(has_sequence_privilege(c.oid, 'USAGE')) FROM c
                        WHERE c.relname = 'job_id'),
                      false) AS may_enqueue,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'INSERT')
                                 AND has_table_privilege(c.oid, 'TRUNCATE'))
                   FROM c WHERE c.is_slot), false) AS may_work,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'SELECT')) FROM c
                  WHERE c.relkind IN ('r', 'p', 'v')), false)
         AND coalesce((SELECT bool_and(has_sequence_privilege(c.oid, 'SELECT')) FROM c
                        WHERE c.relkind = 'S'),
                false) AS may_observe,
       -- The functions that a worker calls first, and the server's function that they call.
       (SELECT coalesce(pg_catalog.array_agg(f.name ORDER BY f.name), '{}') FROM (
          SELECT p.oid::regprocedure::text AS name FROM pg_proc p
           WHERE p.pronamespace = to_regnamespace('posthaste')::oid
             AND p.proname IN ('check_identity', 'register', 'enter_site', 'session_identity',
                               'claim', 'settle', 'close_batches', 'beat', 'enter_ready')
             AND NOT has_function_privilege(p.oid, 'EXECUTE')
          UNION ALL
          SELECT p.oid::regprocedure::text FROM pg_proc p
           WHERE p.pronamespace = 'pg_catalog'::regnamespace::oid
             AND p.proname = 'pg_sequence_last_value'
             AND NOT has_function_privilege(p.oid, 'EXECUTE')) f) AS functions_lacking,
       (SELECT coalesce(pg_catalog.array_agg(DISTINCT r.rolname::text), '{}') FROM c, pg_roles r
         WHERE r.rolname = 'posthaste_worker' AND c.is_slot
           AND NOT has_table_privilege(r.oid, c.oid, 'INSERT')
            OR r.rolname = 'posthaste_producer' AND c.is_entered
               AND NOT has_any_column_privilege(r.oid, c.oid, 'INSERT')
            OR r.rolname = 'posthaste_observer' AND c.relkind IN ('r', 'p', 'v')
               AND NOT has_table_privilege(r.oid, c.oid, 'SELECT')
            OR r.rolname IN ('posthaste_worker', 'posthaste_producer', 'posthaste_observer')
               AND c.relname = 'store' AND EXISTS (
                 SELECT FROM pg_proc p
                  WHERE p.pronamespace = to_regnamespace('posthaste')::oid
                    AND NOT p.prosecdef AND p.prorettype <> 'trigger'::regtype::oid
                    AND NOT has_function_privilege(r.oid, p.oid, 'EXECUTE'))) AS roles_lacking
