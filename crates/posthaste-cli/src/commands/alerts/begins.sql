-- Enqueues the job of an alert that begins, and notes that it was told.
WITH told AS (
  INSERT INTO posthaste.alert AS a (notify, alert, queue, "limit", value)
  VALUES ($1, $2, $3, $6, $7)
  ON CONFLICT (notify, alert, queue, "limit") DO UPDATE
    SET value = excluded.value, begun_at = excluded.begun_at)
SELECT posthaste.enqueue('posthaste.alert', $4::jsonb, $1, unique_key => $5)
