-- Known queues: first those with settings, then those with lanes or routes.
SELECT q.name, max(q.paused_at) AS paused_at, max(q.rate) AS rate,
       extract(epoch FROM max(q.per))::double precision AS per, max(q.burst) AS burst,
       extract(epoch FROM max(q.keep))::double precision AS keep
  FROM (SELECT l.queue AS name, NULL::timestamptz AS paused_at, NULL::integer AS rate,
               NULL::interval AS per, NULL::integer AS burst, NULL::interval AS keep
          FROM posthaste.lane l
        UNION ALL SELECT r.queue, NULL, NULL, NULL, NULL, NULL FROM posthaste.route r
        UNION ALL SELECT s.name, s.paused_at, s.rate, s.per, s.burst, s.keep FROM posthaste.queue s
        ) q
 WHERE q.name <> '' GROUP BY q.name
 ORDER BY coalesce(max(q.paused_at)::text, max(q.rate)::text, max(q.keep)::text) IS NULL, q.name
 LIMIT 1000
