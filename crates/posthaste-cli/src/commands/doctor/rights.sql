-- What the user that we are may do here, and what the roles lack of what `migrate --roles` gives.
SELECT has_schema_privilege('posthaste', 'USAGE') AS may_look,
       has_schema_privilege('posthaste', 'USAGE')
         AND coalesce(has_table_privilege(to_regclass('posthaste.synced'), 'SELECT'), false) AS may_look_at_synced,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'INSERT')) FROM pg_class c
                  WHERE c.relnamespace = to_regnamespace('posthaste') AND c.relname IN ('job', 'store')), false)
         AND coalesce((SELECT bool_and(has_sequence_privilege(c.oid, 'USAGE')) FROM pg_class c
                        WHERE c.relnamespace = to_regnamespace('posthaste') AND c.relname = 'job_id'), false) AS may_enqueue,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'TRUNCATE')) FROM pg_class c
                  WHERE c.relnamespace = to_regnamespace('posthaste') AND c.relkind = 'r' AND c.relname ~ '_[0-7]$'), false) AS may_work,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'SELECT')) FROM pg_class c
                  WHERE c.relnamespace = to_regnamespace('posthaste') AND c.relkind IN ('r', 'p', 'v')), false) AS may_observe,
       (SELECT coalesce(array_agg(DISTINCT r.rolname::text), '{}') FROM pg_class c, pg_roles r
         WHERE c.relnamespace = to_regnamespace('posthaste') AND (
               r.rolname = 'posthaste_worker' AND c.relkind = 'r' AND c.relname ~ '_[0-7]$' AND NOT has_table_privilege(r.oid, c.oid, 'INSERT')
            OR r.rolname = 'posthaste_producer' AND c.relname IN ('job', 'store') AND NOT has_table_privilege(r.oid, c.oid, 'INSERT')
            OR r.rolname = 'posthaste_observer' AND c.relkind IN ('r', 'p', 'v') AND NOT has_table_privilege(r.oid, c.oid, 'SELECT'))) AS roles_lacking
