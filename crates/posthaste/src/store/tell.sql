-- What this worker has done since it last told.
SELECT posthaste.tell($1, $2, $3, $4, $5, $6)
