-- One step of keeping the parked slots small.
SELECT posthaste.tidy_parked($1)
