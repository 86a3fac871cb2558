-- Rings for the queues in which a COPY has written jobs that are due.
SELECT posthaste.ring_for(u.queue, b.bell) FROM (SELECT posthaste.bell() AS bell OFFSET 0) b, unnest($1::text[]) u(queue)
