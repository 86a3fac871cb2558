-- The jobs of these ($1) that are already being cancelled.
SELECT c.id FROM posthaste.cancelling c WHERE c.id = ANY ($1::bigint[])
