-- One step of keeping scheduled slots small, and what blocked more; sent alone.
SELECT o_state, o_blocker FROM posthaste.tidy_scheduled($1, $2)
 WHERE posthaste.begin_single_statement()
