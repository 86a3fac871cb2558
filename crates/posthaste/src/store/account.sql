-- Counts what has come since it was last counted; what had been written by then, or NULL when there is more to count.
SELECT posthaste.account($1, $2, $3, $4)
