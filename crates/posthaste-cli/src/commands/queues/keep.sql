-- Retains completed jobs of a queue for this long. Returns whether that is a change.
SELECT posthaste.keep($1, $2::text::interval)
