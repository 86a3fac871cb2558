-- One step of keeping the aside slots small.
SELECT o_state, o_blocker FROM posthaste.tidy_aside($1, $2)
