-- The number of segments of each kind, and the size of their tables.
SELECT s.ready_current - s.ready_low + 1::bigint AS ready, s.ready_scan - s.ready_low AS sealed,
       s.overflow_current - s.overflow_low + 1::bigint AS overflow,
       s.scheduled_current - s.scheduled_low + 1::bigint AS scheduled,
       (SELECT sum(pg_catalog.pg_total_relation_size(
                 ('posthaste.' || t.name)::regclass))::bigint
          FROM (SELECT 'ready_' || g::text AS name FROM generate_series(0, 5) g
                UNION ALL SELECT 'claim_' || g::text FROM generate_series(0, 5) g
                UNION ALL SELECT 'scheduled_' || g::text FROM generate_series(6, 7) g) t) AS bytes,
       pg_catalog.pg_total_relation_size('posthaste.dead'::regclass) AS dead_bytes
  FROM posthaste.segments() s
