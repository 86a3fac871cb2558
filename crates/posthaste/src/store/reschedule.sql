-- Reschedules a whole batch; the wait is in milliseconds. Returns false if it must be settled job
-- by job.
SELECT posthaste.reschedule($1, $2, $3, $4, $5::bigint::float8 * interval '1 millisecond', $6)
