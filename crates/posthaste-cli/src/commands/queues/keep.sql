-- Keeps completed jobs of a queue for this long; whether it was otherwise before.
SELECT posthaste.keep($1, $2::text::interval)
