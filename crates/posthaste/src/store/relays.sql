-- What the relays of living workers told last; of a queue that none of them relays, the last that did.
WITH newest AS (
  SELECT DISTINCT ON (r.queue, r.worker) r.*, w.id IS NOT NULL AS lives
    FROM posthaste.relay r LEFT JOIN posthaste.worker w ON w.id = r.worker AND w.stopped_at IS NULL
   ORDER BY r.queue, r.worker, r.at DESC)
SELECT n.worker, n.queue, n.route, n.destination, CASE WHEN n.lives THEN n.state ELSE 'stopped' END, n.accepted, n.refused, n.later, n.unanswered,
       n.down_since, n.last_error, n.at
  FROM newest n
 WHERE n.lives OR NOT EXISTS (SELECT FROM newest o WHERE o.queue = n.queue AND (o.lives OR (o.at, o.worker) > (n.at, n.worker)))
 ORDER BY n.queue, n.worker
