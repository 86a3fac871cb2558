-- The bits of queues.
SELECT posthaste.bell_of(u.queue) FROM unnest($1::text[]) WITH ORDINALITY u (queue, n) ORDER BY u.n
