-- Starts a new generation when the current one is large.
SELECT posthaste.rotate($1)
