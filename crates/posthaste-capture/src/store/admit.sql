-- Whether marks of this process are accepted, whether this is the log that it reads, the table that
-- receives the marks, and the current snapshot.
SELECT c.runner = $2::uuid AND c.epoch = $3::uuid AS is_runner,
       (posthaste.current_identity())[3] = $4::text AS is_here,
       pg_sequence_last_value('posthaste.capture_turn'::regclass)::bigint AS turn,
       pg_current_snapshot()::text AS snapshot
  FROM posthaste.capture c
 WHERE c.name = $1::text
