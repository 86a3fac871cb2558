-- One job, in the caller's transaction; with a unique key, the id of the job that holds it.
SELECT posthaste.enqueue($1, $2, $3, $4, coalesce($5, now()), $6, $7, $8, $9)
