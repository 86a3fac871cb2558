-- What others did to a capture: its publication was dropped or made anew, or a table that it
-- publishes has lost its replica identity. And whether slots may keep any amount of log.
SELECT 'publication'::text AS problem, c.name AS capture, ''::text AS table_name
  FROM posthaste.capture c
 WHERE c.stopped IS NULL
   AND NOT EXISTS (SELECT FROM pg_publication p
                    WHERE p.oid = c.published AND p.pubname = c.publication::name)
 UNION ALL
SELECT 'identity'::text, c.name, n.nspname::text || '.'::text || t.relname::text
  FROM posthaste.capture c
  JOIN pg_publication p ON p.oid = c.published AND (p.pubupdate OR p.pubdelete)
  JOIN pg_publication_rel r ON r.prpubid = p.oid
 CROSS JOIN LATERAL (
   SELECT r.prrelid AS oid
    UNION SELECT i.relid::oid FROM pg_partition_tree(r.prrelid::regclass) i WHERE i.isleaf) l
  JOIN pg_class t ON t.oid = l.oid AND t.relkind = 'r'::"char"
  JOIN pg_namespace n ON n.oid = t.relnamespace
 WHERE t.relreplident <> 'f'::"char"
   AND NOT EXISTS (
     SELECT FROM pg_index i
      WHERE i.indrelid = t.oid AND i.indisvalid AND i.indimmediate
        AND CASE t.relreplident WHEN 'i'::"char" THEN i.indisreplident
                                WHEN 'd'::"char" THEN i.indisprimary ELSE false END)
 UNION ALL
SELECT 'limit'::text, ''::text, ''::text
 WHERE current_setting('max_slot_wal_keep_size'::text) = '-1'::text
   AND EXISTS (SELECT FROM posthaste.capture)
 ORDER BY 1, 2, 3
