-- Whether marks of this process are accepted, the table that receives them, and the current
-- snapshot.
SELECT c.runner = $2::uuid AS is_runner, c.epoch = $3::uuid AS is_same,
       pg_sequence_last_value('posthaste.capture_turn'::regclass)::bigint AS turn,
       pg_current_snapshot()::text AS snapshot
  FROM posthaste.capture c
 WHERE c.name = $1::text
