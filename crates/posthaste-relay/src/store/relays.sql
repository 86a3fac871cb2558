-- The last reports of the relays of live workers; for a queue without one, the last report. A relay
-- writes every ten seconds: after half a minute without a report it is silent, whether or not its
-- worker was declared dead. Reports from a clock that was ahead count as the oldest.
WITH newest AS (
  SELECT DISTINCT ON (r.queue, r.worker) r.*, w.id IS NOT NULL AS lives,
         least(r.at, now.at) AS written_at
    FROM (SELECT clock_timestamp() AS at) now, posthaste.relay r
         LEFT JOIN posthaste.worker w ON w.id = r.worker AND w.stopped_at IS NULL
   ORDER BY r.queue, r.worker, r.at > now.at, r.at DESC)
SELECT n.worker, n.queue, n.route, n.destination,
       CASE WHEN NOT n.lives THEN 'stopped'
            WHEN n.written_at < clock_timestamp() - interval '30 s' THEN 'silent'
            ELSE n.state END,
       n.accepted, n.rejected, n.retried, n.unavailable,
       n.down_since, n.failing_since, n.last_error, n.written_at, n.rejections::text,
       n.failures::text
  FROM newest n
 WHERE n.lives OR NOT EXISTS (SELECT FROM newest o WHERE o.queue = n.queue
         AND (o.lives OR (o.written_at, o.worker) > (n.written_at, n.worker)))
 ORDER BY n.queue, n.worker
