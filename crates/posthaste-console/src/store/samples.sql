-- Samples of a queue, or of all queues together, since a time; the last one is the newest of a
-- minute.
SELECT DISTINCT ON (u.at) u.at, u.come, u.done, u.failed, u.started, u.waited, u.available,
       u.running, u.oldest
  FROM (SELECT s.* FROM posthaste.sample s
         WHERE s.span = $1 AND s.at >= $3 AND s.queue = $2
        UNION ALL
        (SELECT s.* FROM posthaste.sample s
          WHERE s.span = '1'::smallint AND s.at >= $3 AND s.queue = $2
          ORDER BY s.at DESC LIMIT 1)) u
 ORDER BY u.at, u.span DESC
