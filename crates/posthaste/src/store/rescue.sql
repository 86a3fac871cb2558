-- Takes jobs away from a dead worker.
SELECT posthaste.rescue($1, $2)
