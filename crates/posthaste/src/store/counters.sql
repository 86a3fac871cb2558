-- The number of jobs of each kind, counting at most $1 jobs of each slot that no mark includes
-- (NULL: all); whether there are more; the paused queues; and how long the next job of each queue
-- and priority has waited. That is read first, with the snapshot at the beginning of the statement.
-- Seconds are numeric: no setting rounds their text.
SELECT pg_catalog.json_build_object(
         'oldest', ARRAY(
           SELECT pg_catalog.row_to_json(a) FROM (
             SELECT o.queue, o.priority, o.since,
                    extract(epoch FROM clock_timestamp() - o.since) AS seconds,
                    EXISTS (SELECT FROM posthaste.worker w
                             WHERE w.stopped_at IS NULL
                               AND w.seen_at > clock_timestamp() - interval '1 min'
                               AND (pg_catalog.cardinality(w.queues) = 0
                                    OR o.queue = ANY (w.queues))) AS is_worked
               FROM posthaste.oldest() o) a
            ORDER BY a.queue, a.priority),
         'paused', ARRAY(
           SELECT q.name FROM posthaste.queue q WHERE q.paused_at IS NOT NULL ORDER BY q.name),
         'is_partial', CASE WHEN $1::integer IS NULL THEN false
                            ELSE posthaste.not_counted($1::integer) >= $1::integer END,
         'jobs', ARRAY(
           SELECT pg_catalog.row_to_json(c) FROM posthaste.counts_within($1::integer) c
            ORDER BY c.queue, c.priority, c.name, c.tag))::text AS answer
