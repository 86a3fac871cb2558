-- Enqueues ticks of a periodic job, once.
SELECT posthaste.tick($1, $2, $3, $4, $5, $6)
