-- The slots that may have jobs, last written first, and the number of pages of each.
SELECT k.slot::integer AS slot,
       pg_catalog.pg_relation_size(
         ((CASE WHEN k.slot < 6 THEN 'posthaste.ready_' ELSE 'posthaste.scheduled_' END)
          || k.slot::text)::regclass) / current_setting('block_size')::bigint AS pages
  FROM (SELECT 0 AS kind, g AS n, g % 4::bigint AS slot
          FROM posthaste.segments() r, generate_series(r.ready_scan, r.ready_current) g
        UNION ALL SELECT 1, g, 4 + g % 2::bigint
          FROM posthaste.segments() r, generate_series(r.overflow_low, r.overflow_current) g
        UNION ALL SELECT 2, g, 6 + g % 2::bigint
          FROM posthaste.segments() r, generate_series(r.scheduled_low, r.scheduled_current) g) k
 ORDER BY k.kind, k.n DESC
