-- Finds a job, with the delivery id that receivers see.
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT f.*, posthaste.delivery_id(f.id) AS delivery_id FROM posthaste.find($1::bigint) f) a
