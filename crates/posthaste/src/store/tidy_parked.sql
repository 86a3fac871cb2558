-- One step of keeping the parked slots small.
SELECT o_state, o_blocker FROM posthaste.tidy_parked($1)
