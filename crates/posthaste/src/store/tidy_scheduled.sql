-- One step of compacting the scheduled slots, and what blocks it; sent without a transaction block.
SELECT o_state, o_blocker FROM posthaste.tidy_scheduled($1, $2)
 WHERE posthaste.begin_single_statement()
