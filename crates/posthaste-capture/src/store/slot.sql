-- A slot of logical decoding. Columns that only newer servers have are read by name.
SELECT s.database = current_database() AND s.plugin = 'pgoutput'::name AS is_ours, s.active,
       coalesce(s.confirmed_flush_lsn, '0/0')::text AS confirmed,
       coalesce(s.wal_status, 'reserved') AS wal_status,
       coalesce(pg_catalog.to_jsonb(s) ->> 'invalidation_reason'::text,
                CASE WHEN pg_catalog.to_jsonb(s) ->> 'conflicting'::text = 'true'::text
                     THEN 'it conflicted with recovery' END) AS reason,
       coalesce(pg_catalog.to_jsonb(s) ->> 'failover'::text = 'true'::text, false) AS is_failover
  FROM pg_replication_slots s
 WHERE s.slot_name = $1::text::name
