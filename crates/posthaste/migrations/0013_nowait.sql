-- A unique key without waiting. Locks: creates a function only.

-- As posthaste.enqueue, for who must not wait for a transaction that is just taking the same unique key. NULL means that there is such a one: nothing was
-- enqueued, and nobody knows yet whether its job will exist. A key whose job is just ending in an open transaction is held still: its holder comes back.
--
-- It waits for a millisecond, because Postgres tells in no other way that a row is in somebody's open transaction; an advisory lock per key would tell at
-- once, and fill the lock table of who enqueues a hundred thousand of them. The attempt is a sub-transaction: hundreds in one transaction cost its
-- neighbours' snapshots more than as many calls of posthaste.enqueue.
CREATE FUNCTION posthaste.enqueue_nowait(name text, kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT 0,
                                         scheduled_at timestamptz DEFAULT now(), expires_at timestamptz DEFAULT NULL, tag text DEFAULT '',
                                         unique_key text DEFAULT NULL, max_attempts integer DEFAULT 25, ordering_key text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '1ms' AS $f$
#variable_conflict use_variable
BEGIN
  RETURN posthaste.enqueue(name, kwargs, queue, priority, scheduled_at, expires_at, tag, unique_key, max_attempts, ordering_key);
EXCEPTION WHEN lock_not_available THEN
  RETURN (SELECT u.id FROM posthaste.unique_key u WHERE u.key = unique_key);
END $f$;
