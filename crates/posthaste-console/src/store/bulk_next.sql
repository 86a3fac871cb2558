-- The number of the next action, and the number of running ones.
SELECT coalesce(max(a.id), 0) + 1 AS id, count(*) FILTER (WHERE a.state = 'running') AS running
  FROM posthaste.bulk_action a
