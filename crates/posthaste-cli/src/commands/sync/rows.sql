-- How many rows a synced table has, as the planner estimates; -1 where it was never analyzed.
SELECT c.reltuples::bigint FROM posthaste.synced s
  JOIN pg_class c ON c.oid = s.relation::oid WHERE s.name = $1
