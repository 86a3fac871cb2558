-- Closes whole batches as done; returns the positions of those that could not be.
SELECT posthaste.done($1, $2, $3, $4)
