-- A worker ends; in good order when nothing of it could ever have to be rescued.
UPDATE posthaste.worker SET stopped_at = clock_timestamp(), clean = $2 WHERE id = $1 AND stopped_at IS NULL
