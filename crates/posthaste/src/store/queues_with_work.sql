-- Lanes of these queues that seem to have unclaimed jobs, without paused queues. Records new lanes
-- for all workers.
WITH queues_with_work AS (
  SELECT s.queue, s.priority
    FROM posthaste.queues_with_work(ARRAY(
         SELECT u.name FROM pg_catalog.unnest($1::text[]) u(name)
          WHERE NOT EXISTS (SELECT FROM posthaste.queue q
                             WHERE q.name = u.name AND q.paused_at IS NOT NULL))) s),
noted AS (
  INSERT INTO posthaste.lane (queue, priority)
  SELECT s.queue, s.priority FROM queues_with_work s
   WHERE NOT EXISTS (SELECT FROM posthaste.lane l
                      WHERE (l.queue, l.priority) = (s.queue, s.priority))
  ON CONFLICT DO NOTHING)
SELECT queue, priority FROM queues_with_work
