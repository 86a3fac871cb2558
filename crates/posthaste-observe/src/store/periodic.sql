-- Periodic jobs that could not be enqueued when the leader checked them.
SELECT p.name, p.error FROM posthaste.periodic p WHERE p.error IS NOT NULL ORDER BY p.name LIMIT 200
