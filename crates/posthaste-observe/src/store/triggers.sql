-- Syncs whose changes do not enqueue jobs as configured: the table was dropped, or a trigger is
-- missing, belongs to something else or is disabled, on the table or on these partitions.
-- Partitions need row triggers, which also fire for changes through a parent.
SELECT s.name, c.oid IS NULL AS is_gone, lacking.parts
  FROM posthaste.synced s
  LEFT JOIN pg_class c ON c.oid = s.relation::oid
  LEFT JOIN LATERAL (SELECT ARRAY(
    SELECT p.oid::regclass::text
      FROM pg_class p
     WHERE (p.oid = c.oid
            OR p.oid IN (SELECT t.relid::oid FROM pg_partition_tree(c.oid::regclass) t))
       AND EXISTS (
         SELECT FROM pg_catalog.unnest(ARRAY['insert', 'delete', 'truncate', 'move', 'update',
                                             'stamp', 'begin']) e
          WHERE CASE WHEN e = 'update' THEN s.enqueues WHEN e = 'stamp' THEN s.draws
                     WHEN e = 'begin' THEN s.draws AND NOT (c.relkind = 'p' OR c.relispartition)
                     ELSE s.draws OR s.enqueues END
            AND NOT EXISTS (
              SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
               WHERE t.tgrelid = p.oid
                 AND f.pronamespace = 'posthaste'::regnamespace::oid
                 AND f.proname = 'sync_' || e || '_' || s.name
                 AND (NOT (c.relkind = 'p' OR c.relispartition) OR e = 'truncate'
                      OR t.tgtype::integer & 1 = 1)
                 AND (t.tgenabled = 'A' OR t.tgenabled = 'O' AND NOT s.always)))
     ORDER BY p.oid::regclass::text) AS parts) lacking ON true
 WHERE c.oid IS NULL OR pg_catalog.cardinality(lacking.parts) > 0
 ORDER BY s.name
