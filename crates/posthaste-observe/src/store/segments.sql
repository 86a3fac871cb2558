-- Segments of the ready log: the number in use, the number of full ones that wait to be truncated,
-- and the number that was held for more than a second, by a transaction with jobs in them or by a
-- lock on their tables. No locks are read while there is one segment.
WITH at AS MATERIALIZED (SELECT * FROM posthaste.segments()),
held AS MATERIALIZED (
  SELECT l.objid::bigint AS segment, right(c.relname::text, 1) AS slot
    FROM pg_locks l
         LEFT JOIN pg_class c ON c.oid = l.relation AND c.relname ~ '_[0-3]$'::text
           AND c.relnamespace = to_regnamespace('posthaste')::oid
         LEFT JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE (SELECT at.ready_current > at.ready_low FROM at) AND l.granted
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND (c.oid IS NOT NULL OR l.locktype = 'advisory'::text AND l.classid::bigint = 1885893473)
     AND (l.pid IS NULL OR a.xact_start < clock_timestamp() - interval '1 s'))
SELECT at.ready_current - at.ready_low + 1, at.ready_scan - at.ready_low,
       (SELECT pg_catalog.count(DISTINCT h.segment) FROM held h
         WHERE h.slot IS NULL AND h.segment >= at.ready_low AND h.segment < at.ready_current),
       (SELECT count(*) FROM generate_series(at.ready_low, at.ready_scan - 1) s
         WHERE EXISTS (SELECT FROM held h WHERE h.slot = (s % 4::bigint)::text))
  FROM at
