-- Cancels jobs. Returns the state of each that is unfinished.
SELECT pg_catalog.json_build_array(c.id, c.state)::text AS answer
  FROM posthaste.cancel_many($1::bigint[]) c ORDER BY c.id
