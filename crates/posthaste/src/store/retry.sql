-- Lets jobs run now that wait for their time; where each of them is then.
SELECT job_id, is_now FROM posthaste.retry($1)
