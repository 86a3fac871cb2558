-- One step of keeping the aside slots small.
SELECT posthaste.tidy_aside($1, $2)
