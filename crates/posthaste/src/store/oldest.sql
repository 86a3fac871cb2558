-- For how long the next job of each queue and priority has been waiting to be claimed.
SELECT queue, priority, since, extract(epoch FROM clock_timestamp() - since)::float8 AS seconds FROM posthaste.oldest() ORDER BY queue, priority
