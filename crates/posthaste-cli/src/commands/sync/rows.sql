-- The planner's estimate of the rows of a synced table; -1 if it was never analyzed.
SELECT c.reltuples::bigint FROM posthaste.synced s
  JOIN pg_class c ON c.oid = s.relation::oid WHERE s.name = $1
