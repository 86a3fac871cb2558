-- Truncates the oldest generation when every row of it is closed.
SELECT o_state, o_batch, o_blocker FROM posthaste.reclaim($1, $2, $3)
