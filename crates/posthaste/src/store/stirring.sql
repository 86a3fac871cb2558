-- Lanes of queues that seem to have something to be claimed; paused queues are left out. Lanes are remembered for everybody.
WITH stirring AS (
  SELECT s.queue, s.priority
    FROM posthaste.stirring(ARRAY(
         SELECT u.name FROM unnest($1::text[]) u(name) WHERE NOT EXISTS (SELECT FROM posthaste.queue q WHERE q.name = u.name AND q.paused_at IS NOT NULL))) s),
noted AS (
  INSERT INTO posthaste.lane (queue, priority)
  SELECT s.queue, s.priority FROM stirring s WHERE NOT EXISTS (SELECT FROM posthaste.lane l WHERE (l.queue, l.priority) = (s.queue, s.priority))
  ON CONFLICT DO NOTHING)
SELECT queue, priority FROM stirring
