-- Closes one job as done, in the caller's transaction; 1 when it was still ours, else 0.
SELECT pg_catalog.cardinality(
         posthaste.settle($1::smallint, $2::bigint, $3::uuid, ARRAY[$4::bigint], ARRAY[0::smallint],
                          NULL, NULL, NULL, NULL, NULL))::bigint AS id
