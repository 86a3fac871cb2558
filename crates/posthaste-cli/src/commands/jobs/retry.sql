-- Lets waiting jobs run now; where each of them is then.
SELECT job_id, is_now FROM posthaste.retry($1, $2, $3, $4, $5, $6, $7) ORDER BY job_id
