-- Jobs of a queue that its relay sends before what comes now: since when the oldest waits to be
-- claimed, and whether there are any. Those that wait for another attempt come after it. The view
-- reads all claimed jobs that are not reclaimed yet, so it is asked only where nothing waits.
SELECT w.seconds, CASE WHEN w.seconds IS NOT NULL THEN true ELSE EXISTS (
         SELECT FROM posthaste.job j
          WHERE j.queue = $1::text AND j.state = ANY ('{available,running,quarantined}'::text[]))
       END AS is_left
  FROM (SELECT extract(epoch FROM clock_timestamp() - min(o.since))::float8 AS seconds
          FROM posthaste.oldest() o WHERE o.queue = $1::text) w
