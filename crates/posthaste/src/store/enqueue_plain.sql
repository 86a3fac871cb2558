-- Enqueues a due job that has only a name and arguments, without a function call: the INSERT of
-- posthaste.enqueue() (sql/functions/enqueue.sql explains its guard) with constants for the other
-- parameters. No row: the function must be called. The caller has checked the arguments, because
-- the planner would print a huge number.
INSERT INTO posthaste.store (slot, queue, name, expires_at, kwargs, kwargs_bytes)
SELECT (c.g % 4::bigint)::smallint, c.queue, $1, now() + interval '30 days', $2, c.bytes
  FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g,
               posthaste.text_bytes($2) AS bytes,
               CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass)
                         & (1::bigint | posthaste.listener_bit('default')) = 0 THEN 'default'
                    ELSE posthaste.resolve_queue_and_notify(NULL, $1, true) END AS queue
        OFFSET 0) c
 WHERE posthaste.is_valid($1, c.queue, '', NULL, NULL, $2, c.bytes, 0, 25, '2000-01-01Z',
                          '2000-01-01Z', '2000-01-01Z', NULL)
   AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
            THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END
RETURNING id
