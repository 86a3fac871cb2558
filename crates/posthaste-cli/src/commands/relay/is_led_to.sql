-- Whether a route leads to each of these queues.
SELECT EXISTS (SELECT FROM posthaste.route r WHERE r.queue = q.name)
  FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY q(name, n) ORDER BY q.n
