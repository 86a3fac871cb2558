-- Totals of queues about ten minutes ago, or at the oldest sample since. Samples exist for the
-- hundred queues with the most jobs, one a minute.
SELECT DISTINCT ON (s.queue) s.queue, s.come, s.done, s.failed,
       extract(epoch FROM clock_timestamp() - s.at)::double precision AS seconds
  FROM posthaste.sample s
 WHERE s.span = 1::smallint AND s.at > clock_timestamp() - interval '630 s'
   AND s.at < clock_timestamp() - interval '30 s' AND s.queue <> ''
 ORDER BY s.queue, s.at
