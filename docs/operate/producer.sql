-- What a role that only enqueues, here app, needs, and no more: with more it could reuse the
-- delivery id of another job or make claims fail (docs/operate/deploy.md, Roles).
GRANT USAGE ON SCHEMA posthaste TO app;
GRANT USAGE ON SEQUENCE posthaste.job_id TO app;
GRANT SELECT ON SEQUENCE posthaste.ready_current, posthaste.ready_scan,
  posthaste.scheduled_current, posthaste.promote_horizon, posthaste.flags,
  posthaste.listeners_until TO app;
GRANT SELECT ON posthaste.route TO app;
-- for INSERT INTO posthaste.job, and Rust's enqueue_many:
GRANT INSERT, SELECT (id) ON posthaste.job TO app;
-- for posthaste.enqueue, and Rust's enqueue and enqueue_copy, which check the limits first:
GRANT INSERT (slot, queue, name, priority, enqueued_at, scheduled_at, expires_at, tag,
  max_attempts, kwargs_bytes, kwargs, ordering_key, own_queue, own_priority, trace),
  SELECT (id) ON posthaste.store TO app;
-- for jobs that are not due or have a key; it runs with its owner's rights:
GRANT EXECUTE ON FUNCTION posthaste.enqueue_slow(text, jsonb, text, integer, timestamptz,
  timestamptz, text, text, integer, text, text, boolean) TO app;
