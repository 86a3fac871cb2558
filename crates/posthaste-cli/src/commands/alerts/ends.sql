-- Enqueues the job of an alert that ends, and notes that nothing is left to be told of it.
WITH told AS (
  DELETE FROM posthaste.alert a
   WHERE a.notify = $1 AND a.alert = $2 AND a.queue = $3 AND a."limit" = $6)
SELECT posthaste.enqueue('posthaste.alert', $4::jsonb, $1, unique_key => $5)
