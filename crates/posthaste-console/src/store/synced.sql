-- Synced tables by their names, and the columns of each.
SELECT s.name, s.relation::regclass::text AS relation, s.key::text AS key,
       extract(epoch FROM s.delay)::double precision AS delay,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = s.relation::oid AND a.attnum > 0::smallint AND NOT a.attisdropped
              ORDER BY a.attnum LIMIT 200) AS columns
  FROM posthaste.synced s ORDER BY s.name LIMIT 200
