-- The jobs of these ($1) that were tried since $2, which the same action does not retry again.
SELECT DISTINCT a.job AS id FROM posthaste.attempt a
 WHERE a.job = ANY ($1::bigint[]) AND a.at >= $2::timestamptz
