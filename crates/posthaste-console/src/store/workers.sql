-- Who works here, and who leads; those first that were started first.
SELECT w.id, w.name, w.started_at,
       extract(epoch FROM clock_timestamp() - w.seen_at)::double precision AS silent,
       w.queues, l.worker IS NOT NULL AS leads
  FROM posthaste.worker w LEFT JOIN posthaste.leader l
       ON l.worker = w.id AND clock_timestamp() BETWEEN l.since AND l.until
 WHERE w.stopped_at IS NULL ORDER BY w.id LIMIT 500
