-- Notifies the queues in which a COPY has written jobs that are due.
SELECT posthaste.notify(u.queue, b.listeners) 
  FROM (SELECT posthaste.listeners() AS listeners OFFSET 0) b,
       pg_catalog.unnest($1::text[]) u(queue)
