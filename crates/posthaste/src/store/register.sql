-- A worker begins.
INSERT INTO posthaste.worker (name) VALUES ($1) RETURNING id
