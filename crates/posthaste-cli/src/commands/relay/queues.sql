-- Of these queues: whether nothing of them is claimed now, and whether a pattern leads there.
SELECT EXISTS (SELECT FROM posthaste.queue s WHERE s.name = q.name AND s.paused_at IS NOT NULL),
       EXISTS (SELECT FROM posthaste.route r WHERE r.queue = q.name)
  FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY q(name, n) ORDER BY q.n
