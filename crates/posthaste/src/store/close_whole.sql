-- Closes whole batches as done; returns the positions of those that could not be.
SELECT posthaste.close_whole($1, $2, $3, $4)
