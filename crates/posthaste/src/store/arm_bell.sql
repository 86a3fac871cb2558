-- Whoever enqueues rings from now on.
SELECT posthaste.arm_bell($1, $2::bigint * interval '1 millisecond')
