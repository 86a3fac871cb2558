-- One step of compacting the overflow, and what blocks it; sent without a transaction block.
SELECT o_state, o_blocker FROM posthaste.tidy_overflow($1, $2, $3)
 WHERE posthaste.begin_single_statement()
