-- How many rows a synced table has, as the planner guesses; -1 where nobody has looked.
SELECT c.reltuples::bigint FROM posthaste.synced s
  JOIN pg_class c ON c.oid = s.relation::oid WHERE s.name = $1
