-- Rings for a queue, armed or not.
SELECT pg_notify('posthaste', $1)
