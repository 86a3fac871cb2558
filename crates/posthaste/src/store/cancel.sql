-- Cancels jobs; what became of each that is not done.
SELECT pg_catalog.json_build_array(c.id, c.state)::text AS answer
  FROM posthaste.cancel_many($1::bigint[]) c ORDER BY c.id
