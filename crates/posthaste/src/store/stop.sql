-- A worker ends in good order.
UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE id = $1 AND stopped_at IS NULL
