-- Writes the report of a relay.
INSERT INTO posthaste.relay
  (slot, worker, queue, route, destination, state, accepted, rejected, retried, unavailable,
   down_since, failing_since, last_error, rejections, failures)
SELECT (SELECT posthaste.volume('relay')), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
       $13::text::jsonb, $14::text::jsonb
