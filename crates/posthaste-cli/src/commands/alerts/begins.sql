-- Enqueues the job of an alert that begins, and notes that it was told.
WITH told AS (
  INSERT INTO posthaste.alert AS a (notify, alert, queue, value, "limit")
  VALUES ($1, $2, $3, $6, $7)
  ON CONFLICT (notify, alert, queue) DO UPDATE
    SET value = excluded.value, "limit" = excluded."limit", begun_at = excluded.begun_at)
SELECT posthaste.enqueue('posthaste.alert', $4::jsonb, $1, unique_key => $5)
