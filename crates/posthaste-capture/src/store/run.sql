-- Makes this process run the capture.
UPDATE posthaste.capture SET runner = $2, path = $3, started_at = clock_timestamp(),
       indirect_since = CASE WHEN path <> 'direct'::text THEN indirect_since END, stopped = NULL
 WHERE name = $1::text
