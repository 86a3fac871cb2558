-- One job, with its arguments and the id that receivers see.
SELECT id, name, queue, priority, state, attempt, max_attempts, scheduled_at, tag, last_error,
       enqueued_at, expires_at, unique_key, ordering_key, kwargs::text AS kwargs, posthaste.delivery_id(id)::text AS delivery_id
  FROM posthaste.job WHERE id = $1
