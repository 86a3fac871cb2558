-- The newest errors of these queues within ten minutes. History is appended, so they are in the
-- last pages of its volumes: half a megabyte of each is read, whatever its size.
SELECT DISTINCT ON (n.queue) n.queue, left(n.error, 300) AS error FROM (
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_0 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_0'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_1 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_1'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_2 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_2'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_3 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_3'::regclass) / 8192::bigint - 64::bigint))::tid)) n
 WHERE n.queue = ANY ($1::text[]) AND n.error IS NOT NULL
   AND n.at > clock_timestamp() - interval '10 min'
 ORDER BY n.queue, n.at DESC
