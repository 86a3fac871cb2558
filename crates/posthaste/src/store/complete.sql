-- Closes one job as done in the caller's transaction. Returns 1, or 0 if another session has closed
-- it.
SELECT pg_catalog.cardinality(
         posthaste.settle($1::smallint, $2::bigint, $3::uuid, ARRAY[$4::bigint], ARRAY[0::smallint],
                          NULL, NULL, NULL, NULL, NULL))::bigint AS id
