-- Reschedules a whole batch; false when it is to be settled job by job. The wait is sent in
-- milliseconds.
SELECT posthaste.reschedule($1, $2, $3, $4, $5::bigint::float8 * interval '1 millisecond', $6)
