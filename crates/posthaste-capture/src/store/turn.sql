-- The table that receives marks, and whether it is large.
SELECT t.turn, pg_relation_size(CASE t.turn % 2::bigint
                                WHEN 0::bigint THEN 'posthaste.capture_mark_0'::regclass
                                ELSE 'posthaste.capture_mark_1'::regclass END) > 1048576 AS is_long
  FROM (SELECT pg_sequence_last_value('posthaste.capture_turn'::regclass)::bigint AS turn) t
