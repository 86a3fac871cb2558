-- A priority of the queue that is not among the known ones; it is remembered for everybody.
WITH found AS (SELECT priority FROM posthaste.discover($1, $2) priority)
INSERT INTO posthaste.lane (queue, priority) SELECT $1, priority FROM found
ON CONFLICT (queue, priority) DO UPDATE SET priority = excluded.priority
RETURNING priority
