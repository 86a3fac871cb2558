-- Which of these jobs ($1) were tried since $2, and are not let run once more by the same action.
SELECT DISTINCT a.job AS id FROM posthaste.attempt a
 WHERE a.job = ANY ($1::bigint[]) AND a.at >= $2::timestamptz
