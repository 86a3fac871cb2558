-- Workers of this store that have not stopped, and which of them leads. Workers with another
-- identity belong to the original of a copy. A replica, or a role that may not read the store's
-- identity, shows all workers.
SELECT w.id, w.name, w.started_at,
       extract(epoch FROM clock_timestamp() - w.seen_at)::double precision AS silent,
       w.queues, l.worker IS NOT NULL AS leads, w.failing_since, w.last_error
  FROM (SELECT CASE WHEN NOT pg_is_in_recovery()
                     AND has_function_privilege('posthaste.cluster()'::text, 'EXECUTE'::text)
                    THEN posthaste.session_identity() END AS identity OFFSET 0) here,
       posthaste.worker w LEFT JOIN posthaste.leader l
       ON l.worker = w.id AND clock_timestamp() BETWEEN l.since AND l.until
 WHERE w.stopped_at IS NULL AND (here.identity IS NULL OR w.identity = here.identity)
 ORDER BY w.id LIMIT 5000
