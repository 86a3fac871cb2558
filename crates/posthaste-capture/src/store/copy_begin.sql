-- Starts a copy of a table; no row if one is running.
INSERT INTO posthaste.capture_copy (capture, schema_name, table_name, filter, expected)
SELECT $1, $2, $3, $4,
       greatest(0::bigint, coalesce(
         (SELECT sum(greatest(l.reltuples, 0::real))::bigint
            FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = $2::text::name
           CROSS JOIN LATERAL (SELECT c.oid UNION SELECT i.relid::oid
                                 FROM pg_partition_tree(c.oid::regclass) i WHERE i.isleaf) p
            JOIN pg_class l ON l.oid = p.oid AND l.relkind = 'r'::"char"
           WHERE c.relname = $3::text::name), 0::bigint))
    ON CONFLICT (capture, schema_name, table_name) WHERE ended_at IS NULL DO NOTHING
RETURNING id
