-- A unique key without waiting. Locks: creates functions only.

-- Takes a key for a job. Returns who holds it now, this job or another; NULL: another transaction is just taking it.
--
-- It waits for a millisecond, because Postgres tells in no other way that a row is in somebody's open transaction; an advisory lock per key would tell at
-- once, and fill the lock table of who enqueues a hundred thousand of them. The attempt is a sub-transaction: hundreds in one transaction cost its
-- neighbours' snapshots more than as many calls of posthaste.enqueue.
CREATE FUNCTION posthaste.take_key_nowait(p_key text, p_job bigint) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '1ms' AS $f$
DECLARE
  v_holder bigint;
BEGIN
  LOOP
    INSERT INTO posthaste.unique_key AS u (key, id) VALUES (p_key, p_job) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN p_job;
    END IF;
    SELECT u.id INTO v_holder FROM posthaste.unique_key u WHERE u.key = p_key;
    IF FOUND THEN
      RETURN v_holder;
    END IF;
  END LOOP;
EXCEPTION WHEN lock_not_available THEN
  RETURN (SELECT u.id FROM posthaste.unique_key u WHERE u.key = p_key);
END $f$;

-- As posthaste.enqueue, for who must not wait for a transaction that is just taking the same unique key. NULL means that there is such a one: nothing was
-- enqueued, and nobody knows yet whether its job will exist. A key whose job is just ending in an open transaction is held still: its holder comes back.
-- Only the key is not waited for: a job without one is always enqueued, and who has the key enqueues as ever.
CREATE FUNCTION posthaste.enqueue_nowait(name text, kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT 0,
                                         scheduled_at timestamptz DEFAULT now(), expires_at timestamptz DEFAULT NULL, tag text DEFAULT '',
                                         unique_key text DEFAULT NULL, max_attempts integer DEFAULT 25, ordering_key text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
BEGIN
  IF unique_key IS NULL THEN
    RETURN posthaste.enqueue(name, kwargs, queue, priority, scheduled_at, expires_at, tag, unique_key, max_attempts, ordering_key);
  END IF;
  RETURN posthaste.enqueue_other(name, kwargs, queue, priority, scheduled_at, expires_at, tag, unique_key, max_attempts, ordering_key, nowait => true);
END $f$;
