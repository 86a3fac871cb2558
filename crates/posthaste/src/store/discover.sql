-- Finds priorities of the queue that are not known yet, and records them for all workers; sent
-- without a transaction block.
WITH found AS (
  SELECT DISTINCT priority FROM posthaste.discover_priorities($1, $2) priority
   WHERE posthaste.begin_single_statement())
INSERT INTO posthaste.lane (queue, priority) SELECT $1, priority FROM found
ON CONFLICT (queue, priority) DO UPDATE SET priority = excluded.priority
RETURNING priority
