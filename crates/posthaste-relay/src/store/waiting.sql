-- Jobs of a queue that can be claimed, about in their order.
SELECT j.id, posthaste.delivery_id(j.id), j.enqueued_at, j.scheduled_at, j.expires_at, j.priority,
       j.attempt, j.max_attempts, j.name, j.tag, j.unique_key,
       j.ordering_key, j.trace, j.kwargs
  FROM posthaste.job j WHERE j.queue = $1 AND j.state = 'available'
 ORDER BY j.priority, j.id LIMIT $2
