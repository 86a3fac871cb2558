-- Tells how a relay goes.
INSERT INTO posthaste.relay (slot, worker, queue, route, destination, state, accepted, refused, later, unanswered, down_since, last_error)
SELECT (SELECT posthaste.volume('relay')), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
