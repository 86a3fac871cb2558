-- Periodic jobs that could not be enqueued when the leader looked at them, ten at most.
SELECT p.name, p.error, count(*) OVER () AS failed
  FROM posthaste.periodic p WHERE p.error IS NOT NULL ORDER BY p.name LIMIT 10
