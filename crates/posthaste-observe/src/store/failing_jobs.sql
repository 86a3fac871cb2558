-- Jobs that are retried, by queue and number of failures, from the attempts of the last 75 minutes,
-- because a wait is at most an hour. History is appended, so they are in the last pages of its
-- volumes: half a megabyte of each is read, whatever its size.
SELECT m.queue, m.attempts, count(*) AS jobs,
       (pg_catalog.array_agg(left(m.error, 300) ORDER BY m.at DESC))[1] AS error
  FROM (SELECT DISTINCT ON (n.job) n.job, n.queue, n.at, n.attempt::bigint AS attempts, n.outcome,
               n.error
          FROM (
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_0 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_0'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_1 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_1'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_2 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_2'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_3 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_3'::regclass) / 8192::bigint - 64::bigint))::tid)) n
         WHERE n.attempt > 2 AND n.at > clock_timestamp() - interval '75 min'
         ORDER BY n.job, n.at DESC) m
 WHERE m.outcome IN ('retried', 'crashed')
 GROUP BY m.queue, m.attempts ORDER BY m.attempts DESC, m.queue LIMIT 1000
