-- Deletes the record of an alert that ends and enqueues its job, unless another process did.
WITH noted AS (
  DELETE FROM posthaste.alert a
   WHERE a.notify = $1 AND a.alert = $2 AND a.queue = $3 AND a."limit" = 0::double precision
  RETURNING 1)
SELECT posthaste.enqueue('posthaste.alert', $4::jsonb, $1) FROM noted
