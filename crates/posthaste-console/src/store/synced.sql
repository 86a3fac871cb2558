-- Synced tables by name, their columns, and the results of their last audits.
SELECT s.name, s.relation::regclass::text AS relation, s.key::text AS key,
       extract(epoch FROM s.delay)::double precision AS delay,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = s.relation::oid AND a.attnum > 0::smallint AND NOT a.attisdropped
              ORDER BY a.attnum LIMIT 200) AS columns,
       extract(epoch FROM clock_timestamp() - f.audited_at)::double precision AS audited,
       f.rows, f.documents, f.differed, f.repaired, f.contents
  FROM posthaste.synced s LEFT JOIN posthaste.audited f ON f.name = s.name ORDER BY s.name LIMIT 200
