-- Puts off a whole batch; false when it is to be settled job by job. The wait is sent in milliseconds.
SELECT posthaste.put_off($1, $2, $3, $4, $5::bigint * interval '1 millisecond', $6)
