-- Records that an alert begins and enqueues its job, unless it was recorded before.
WITH noted AS (
  INSERT INTO posthaste.alert AS a (notify, alert, queue, "limit", value)
  VALUES ($1, $2, $3, 0::double precision, $5)
  ON CONFLICT (notify, alert, queue, "limit") DO NOTHING RETURNING 1)
SELECT posthaste.enqueue('posthaste.alert', $4::jsonb, $1) FROM noted
