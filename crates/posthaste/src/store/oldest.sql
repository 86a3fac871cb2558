-- How long the next job of each queue and priority has waited to be claimed, and whether a live
-- worker works the queue.
SELECT o.queue, o.priority, o.since,
       extract(epoch FROM clock_timestamp() - o.since)::float8 AS seconds,
       EXISTS (SELECT FROM posthaste.worker w
                WHERE w.stopped_at IS NULL AND w.seen_at > clock_timestamp() - interval '1 min'
                  AND (pg_catalog.cardinality(w.queues) = 0
                       OR o.queue = ANY (w.queues))) AS is_worked
  FROM posthaste.oldest() o ORDER BY o.queue, o.priority
