-- One step of keeping the overflow small, and what blocked more; sent alone.
SELECT o_state, o_blocker FROM posthaste.tidy_overflow($1, $2, $3)
 WHERE posthaste.begin_single_statement()
