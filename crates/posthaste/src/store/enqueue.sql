-- One job, in the caller's transaction. The rule on the view picks queue and slot.
INSERT INTO posthaste.job (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
VALUES ($1, $2::text::jsonb, $3, $4, $5, $6, $7, $8)
RETURNING id
