-- Changes by others that affect a capture: its publication was dropped or created again, or a table
-- that it publishes has lost its replica identity. Whether slots may retain an unlimited amount of
-- log. On servers that synchronize slots to standbys, whether a failover would find the slot.
WITH slot AS MATERIALIZED (
       SELECT c.name, pg_catalog.to_jsonb(s) ->> 'failover'::text = 'true'::text AS is_failover
         FROM posthaste.capture c JOIN pg_replication_slots s ON s.slot_name = c.slot::name),
     follows AS MATERIALIZED (
       SELECT EXISTS (
         SELECT FROM pg_stat_replication r
          WHERE r.application_name <> ALL ('{pg_basebackup,pg_receivewal}'::text[])
            AND NOT EXISTS (SELECT FROM pg_replication_slots s
                             WHERE s.active_pid = r.pid AND s.slot_type = 'logical'::text)) AS any),
     waits AS MATERIALIZED (
       SELECT btrim(w.slot, ' "'::text) AS slot
         FROM pg_catalog.string_to_table(
                nullif(current_setting('synchronized_standby_slots'::text, true), ''::text),
                ','::text) w (slot))
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
 UNION ALL
SELECT 'unsynchronized'::text, s.name, ''::text FROM slot s, follows f
 WHERE f.any AND NOT s.is_failover
 UNION ALL
SELECT 'no synchronization'::text, ''::text, ''::text FROM follows f
 WHERE f.any AND EXISTS (SELECT FROM slot s WHERE s.is_failover)
   AND NOT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.application_name LIKE '%slotsync worker'::text)
 UNION ALL
SELECT 'standbys lag'::text, ''::text, ''::text FROM follows f
 WHERE f.any AND EXISTS (SELECT FROM slot s WHERE s.is_failover) AND NOT EXISTS (SELECT FROM waits)
 UNION ALL
SELECT 'standby missing'::text, ''::text, w.slot FROM waits w
 WHERE EXISTS (SELECT FROM slot s WHERE s.is_failover)
   AND NOT EXISTS (SELECT FROM pg_replication_slots p
                    WHERE p.slot_name = w.slot::name AND p.slot_type = 'physical'::text
                      AND p.active)
 ORDER BY 1, 2, 3
