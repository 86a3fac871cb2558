-- Known queues: those with lanes, routes or settings.
SELECT name, bool_or(paused) AS paused, max(rate) AS rate,
       extract(epoch FROM max(per))::double precision AS seconds, max(burst) AS burst,
       max(keep)::text AS keep
  FROM (SELECT queue AS name, false AS paused, NULL::integer AS rate, NULL::interval AS per,
               NULL::integer AS burst, NULL::interval AS keep
          FROM posthaste.lane UNION ALL
        SELECT queue, false, NULL, NULL, NULL, NULL FROM posthaste.route UNION ALL
        SELECT name, paused_at IS NOT NULL, rate, per, burst, keep FROM posthaste.queue
         WHERE name <> '') q
 GROUP BY name ORDER BY name
