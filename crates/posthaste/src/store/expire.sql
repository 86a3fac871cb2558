-- Finds expired jobs.
SELECT posthaste.expire($1)
