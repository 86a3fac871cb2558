-- What the relays of living workers wrote last; of a queue that none of them relays, the last that
-- did. A relay writes every ten seconds: one that has not for half a minute is silent, whether
-- anybody is there to declare its worker dead or not. What a clock that was ahead has written is
-- older than all else.
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
