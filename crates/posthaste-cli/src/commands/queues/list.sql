-- Queues that are known: with lanes, jobs' routes or settings of their own.
SELECT name, bool_or(paused) AS paused
  FROM (SELECT queue AS name, false AS paused FROM posthaste.lane UNION ALL
        SELECT queue, false FROM posthaste.route UNION ALL
        SELECT name, paused_at IS NOT NULL FROM posthaste.queue) q
 GROUP BY name ORDER BY name
