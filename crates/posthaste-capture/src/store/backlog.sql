-- Jobs of a queue that its relay sends before new ones: how long the oldest has waited to be
-- claimed, and whether there are any. Jobs that wait for a retry are not included. The view reads
-- all claimed jobs that are not reclaimed, so it is read only if none waits.
SELECT w.seconds, CASE WHEN w.seconds IS NOT NULL THEN true ELSE EXISTS (
         SELECT FROM posthaste.job j
          WHERE j.queue = $1::text AND j.state = ANY ('{available,running,quarantined}'::text[]))
       END AS is_left
  FROM (SELECT extract(epoch FROM clock_timestamp() - min(o.since))::float8 AS seconds
          FROM posthaste.oldest() o WHERE o.queue = $1::text) w
