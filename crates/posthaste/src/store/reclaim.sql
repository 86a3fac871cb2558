-- Truncates the oldest generation when every row of it is closed. How far it was verified counts only if this very session verified it: a server
-- that crashed in between may have forgotten acknowledgements, and its sessions with them.
SELECT o_state, o_batch, o_blocker, set_config('posthaste.verified', concat($1::bigint, ':', o_batch), false)
  FROM posthaste.reclaim($1::bigint, CASE WHEN current_setting('posthaste.verified', true) = concat($1::bigint, ':', $2::bigint) THEN $2::bigint ELSE 0 END, $3::integer)
