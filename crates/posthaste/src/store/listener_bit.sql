-- The bits of queues.
SELECT posthaste.listener_bit(u.queue)
  FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY u (queue, n) ORDER BY u.n
