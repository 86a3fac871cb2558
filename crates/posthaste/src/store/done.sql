-- Closes whole batches as done, all or nothing.
SELECT posthaste.done($1, $2, $3, $4)
