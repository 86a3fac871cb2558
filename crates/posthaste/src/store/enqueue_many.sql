-- Enqueues many jobs in one statement. Returns their ids in the order of the arrays.
INSERT INTO posthaste.job (name, kwargs, queue, priority, scheduled_at, expires_at, tag,
                           max_attempts, ordering_key, trace)
SELECT u.name, u.kwargs::jsonb, u.queue, u.priority, u.scheduled_at, u.expires_at, u.tag,
       u.max_attempts, u.ordering_key, u.trace
  FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::timestamptz[],
              $6::timestamptz[], $7::text[], $8::integer[], $9::text[], $10::text[])
       WITH ORDINALITY u (name, kwargs, queue, priority, scheduled_at, expires_at, tag,
                          max_attempts, ordering_key, trace, n)
 ORDER BY u.n
RETURNING id
