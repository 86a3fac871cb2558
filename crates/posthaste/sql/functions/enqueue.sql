-- Enqueue: the view posthaste.job takes INSERTs by one unconditional rule, so that INSERT ...
-- SELECT, RETURNING, savepoints, prepared transactions and all isolation levels work as on a table;
-- posthaste.enqueue() is a convenience over the same rows.

-- The position of a log. A role that may not read it gets an error: newer servers return NULL
-- instead, as every server does for a sequence that was never set (a schema without its rows).
-- posthaste.flags also has no value after a crash.
CREATE OR REPLACE FUNCTION posthaste.position(cell regclass) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v bigint := pg_sequence_last_value(cell);
BEGIN
  IF v IS NULL AND pg_catalog.has_sequence_privilege(cell::oid, 'USAGE, SELECT'::text) THEN
    IF cell::oid = 'posthaste.flags'::regclass::oid
       AND pg_sequence_last_value('posthaste.ready_scan'::regclass) IS NOT NULL THEN
      RETURN posthaste.recover();
    END IF;
    RAISE EXCEPTION 'posthaste: sequence % was never set: this schema has no rows', cell
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Load its rows too and run `posthaste rebase`, or drop the schema and migrate.';
  ELSIF v IS NULL THEN
    RAISE EXCEPTION 'posthaste: permission denied for sequence %', cell
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN v;
END $f$;

-- Enters the current segment of the ready log for the rest of the transaction and returns its slot.
-- Sealing conflicts with the shared advisory lock, so a segment cannot be sealed while it is held.
-- The lock is taken before ready_scan is read again: if the segment was sealed in between, the
-- newer one is used, without waiting or failing. A foreign session that holds the key would make
-- the attempt fail forever, hence the waiting call after a while. In a restored database the
-- cursors may come from different moments and the current segment may be sealed; any unsealed one
-- will do.
CREATE OR REPLACE FUNCTION posthaste.enter_ready() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := greatest(posthaste.position('posthaste.ready_current'),
        posthaste.position('posthaste.ready_scan'));
    IF pg_try_advisory_xact_lock_shared(1885893473, g::integer) THEN
      -- mutant: entering a segment does not check ready_scan: IF true THEN
      IF posthaste.position('posthaste.ready_scan') <= g THEN
        RETURN g % 4::bigint;
      END IF;
    ELSE
      tries := tries + 1;
      IF tries > 100 THEN
        PERFORM pg_advisory_xact_lock_shared(1885893473, g::integer);
      END IF;
    END IF;
  END LOOP;
END $f$;

-- The same for scheduled jobs, but stricter: the transaction gets its xid before it reads the
-- position, and the segment must still be the current one afterwards. So a transaction that got its
-- xid after a segment was closed cannot be in it.
CREATE OR REPLACE FUNCTION posthaste.enter_scheduled() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  x xid8 := pg_current_xact_id();
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := posthaste.position('posthaste.scheduled_current');
    -- gate: enqueue waits after it has read scheduled_current (insert): PERFORM posthaste.gate(2);
    IF pg_try_advisory_xact_lock_shared(1885893474, g::integer) THEN
      -- mutant: a scheduled segment is entered without checking again: IF true THEN
      IF posthaste.position('posthaste.scheduled_current') = g THEN
        PERFORM posthaste.notify('', posthaste.listeners());
        RETURN 6::bigint + g % 2::bigint;
      END IF;
    ELSE
      tries := tries + 1;
      IF tries > 100 THEN
        PERFORM pg_advisory_xact_lock_shared(1885893474, g::integer);
      END IF;
    END IF;
  END LOOP;
END $f$;

-- The time up to which the promoter has read. A job due by then must not be scheduled any more: it
-- goes into the ready log. Read after the transaction has its xid, so that each scheduled row is
-- either due after the promoter's last read, or belongs to a transaction that the promoter knows to
-- check. This does not depend on a clock: a clock that steps back makes jobs run early, but loses
-- none. Read before enter_scheduled() reads the current segment:
-- posthaste.return_to_earlier_segment(), which the leader calls once it is notified here, relies on
-- that order.
CREATE OR REPLACE FUNCTION posthaste.promote_horizon() RETURNS timestamptz LANGUAGE plpgsql AS $f$
DECLARE
  -- gate: enqueue waits before it reads the horizon (insert): w integer := posthaste.gate(3);
  x xid8 := pg_current_xact_id();
  v_published bigint := pg_sequence_last_value('posthaste.promote_horizon'::regclass);
  v_until timestamptz := to_timestamp(v_published::double precision / 1000000::double precision);
BEGIN
  IF v_until > clock_timestamp() + interval '1 s' THEN
    PERFORM posthaste.notify('', posthaste.listeners());
  END IF;
  RETURN v_until;
END $f$;

-- The queue of a job that was enqueued without a queue.
CREATE OR REPLACE FUNCTION posthaste.route_of(name text)
RETURNS text LANGUAGE plpgsql STABLE AS $f$
BEGIN
  RETURN coalesce((SELECT t.queue FROM posthaste.route t
                    WHERE t.pattern = name
                      OR (right(t.pattern, 1) = '*' AND starts_with(name, left(t.pattern, -1)))
                    ORDER BY t.pattern = name DESC, length(t.pattern) DESC LIMIT 1), 'default');
END $f$;

CREATE OR REPLACE FUNCTION posthaste.note_routes() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF posthaste.position('posthaste.flags') & 1 = 0 THEN
    PERFORM pg_advisory_xact_lock(1885893480, 0);
    PERFORM setval('posthaste.flags', pg_sequence_last_value('posthaste.flags'::regclass) | 1);
  END IF;
  RETURN NULL;
END $f$;

-- The queue of one job; notifies its workers if it is due. Called if a flag is set.
CREATE OR REPLACE FUNCTION posthaste.resolve_queue_and_notify(queue text, name text, due boolean)
RETURNS text LANGUAGE plpgsql AS $f$
BEGIN
  queue := coalesce(queue, CASE WHEN posthaste.position('posthaste.flags') & 1::bigint = 0
                                THEN 'default' ELSE posthaste.route_of(name) END);
  IF due THEN
    PERFORM posthaste.notify(queue, posthaste.listeners());
  END IF;
  RETURN queue;
END $f$;

-- Enqueues one job in the caller's transaction and returns its id. If another job holds the
-- unique_key, returns that job's id and enqueues nothing; waits for a transaction that is taking
-- the same key. Under REPEATABLE READ and SERIALIZABLE a key taken after the snapshot raises a
-- serialization failure (40001), as any unique index does.
--
-- A plain job that is due is validated by the statement that inserts it: each expression that
-- PL/pgSQL evaluates separately takes a snapshot, which is expensive under concurrent commits. Only
-- its size is measured before: within the statement, the planner might print a huge number.
-- Volatile values come from the columns' defaults. The guard is enter_ready() inlined, as a CASE
-- because the planner may reorder the parts of an AND. If no row is written, the job is not plain
-- or not valid, or the segment is being sealed: enqueue_slow() handles these. It runs under its
-- caller's search_path, so its calls are exact or qualified (sql/README.md).
CREATE OR REPLACE FUNCTION posthaste.enqueue(
  name text, kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT 0,
  scheduled_at timestamptz DEFAULT now(), expires_at timestamptz DEFAULT NULL, tag text DEFAULT '',
  unique_key text DEFAULT NULL, max_attempts integer DEFAULT 25, ordering_key text DEFAULT NULL,
  trace text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  job bigint;
  bytes integer := posthaste.text_bytes(kwargs);
BEGIN
  INSERT INTO posthaste.store AS r (slot, queue, name, priority, scheduled_at, expires_at, tag,
      kwargs, kwargs_bytes, max_attempts, trace)
  SELECT (c.g % 4::bigint)::smallint, c.queue, name, priority, scheduled_at,
         coalesce(expires_at, now() + interval '30 days'), tag, kwargs, bytes, max_attempts,
         trace
    FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g,
                 -- gate: enqueue waits after it has read ready_current (insert):
                 --   | posthaste.gate(1),
                 CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) = 0
                     THEN coalesce(queue, 'default')
                     ELSE posthaste.resolve_queue_and_notify(queue, name,
                              scheduled_at <= clock_timestamp()) END AS queue
          OFFSET 0) c
   WHERE unique_key IS NULL AND ordering_key IS NULL AND priority IS NOT NULL
     AND scheduled_at <= clock_timestamp()
     AND posthaste.is_valid(name, c.queue, tag, NULL, NULL, kwargs, bytes, 0, max_attempts,
         scheduled_at, coalesce(expires_at, scheduled_at), scheduled_at, trace)
     -- mutant: enqueue() takes no shared lock: AND CASE WHEN true
     AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
              -- mutant: enqueue() does not check ready_scan: THEN true END
              -- gate: enqueue waits before it writes the row:
              --   | THEN pg_sequence_last_value('posthaste.ready_scan'::regclass)
              --   |   <= c.g + 0 * posthaste.gate(6) END
              THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END
  RETURNING r.id INTO job;
  RETURN coalesce(job,
      posthaste.enqueue_slow(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
                                                 unique_key, max_attempts,
                                                 ordering_key, trace));
END $f$;

-- Any job: with arguments left NULL, scheduled, with a key, or invalid. With nowait, returns NULL
-- for a key that another transaction is taking. It runs with its owner's rights, because a job with
-- a key is written with the id under which its key was taken: a caller who may choose ids could
-- reuse another job's, by which receivers drop duplicates. A job without a time is due even if the
-- clock has stepped back since the transaction began: hence now().
CREATE OR REPLACE FUNCTION posthaste.enqueue_slow(
  name text, kwargs jsonb, queue text, priority integer, scheduled_at timestamptz,
  expires_at timestamptz, tag text, unique_key text, max_attempts integer, ordering_key text,
  trace text DEFAULT NULL, nowait boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  job bigint;
  holder bigint;
  bytes integer;
  moment timestamptz := clock_timestamp();
BEGIN
  name := coalesce(name, ''); kwargs := coalesce(kwargs, '{}');
  queue := coalesce(queue, CASE WHEN posthaste.position('posthaste.flags') & 1 = 0 THEN 'default'
        ELSE posthaste.route_of(name) END); priority := coalesce(priority, 0);
  scheduled_at := coalesce(scheduled_at, now());
  expires_at := coalesce(expires_at, least(greatest(scheduled_at, moment), '9999-01-01 00:00Z')
                                     + interval '30 days');
  tag := coalesce(tag, ''); bytes := posthaste.text_bytes(kwargs);
  IF posthaste.is_valid(name, queue, tag, unique_key, ordering_key, kwargs, bytes, 0, max_attempts,
      scheduled_at, expires_at, moment, trace) IS NOT TRUE THEN
    PERFORM posthaste.refuse(name, queue, tag, unique_key, ordering_key, kwargs, bytes, 0,
        max_attempts, scheduled_at, expires_at, moment, trace);
  END IF;
  PERFORM posthaste.position('posthaste.flags');
  job := nextval('posthaste.job_id');
  IF unique_key IS NOT NULL AND nowait THEN
    holder := posthaste.take_key_nowait(unique_key, job);
    IF holder IS DISTINCT FROM job THEN
      RETURN holder;
    END IF;
  ELSIF unique_key IS NOT NULL THEN
    LOOP
      INSERT INTO posthaste.unique_key AS u (key, id) VALUES (unique_key, job)
        ON CONFLICT DO NOTHING;
      -- bug: a unique key is given twice: EXIT WHEN true;
      EXIT WHEN FOUND;
      -- The caller's expression may have another collation.
      SELECT u.id INTO holder FROM posthaste.unique_key u
       WHERE u.key = unique_key COLLATE pg_catalog."C";
      IF FOUND THEN
        RETURN holder;
      END IF;
    END LOOP;
  END IF;
  INSERT INTO posthaste.store (id, slot, queue, name, priority, scheduled_at, expires_at,
                               enqueued_at, tag, unique_key, kwargs, kwargs_bytes, max_attempts,
                               ordering_key, own_queue, own_priority, trace)
  SELECT job,
         -- mutant: enqueue() checks only the clock: CASE WHEN scheduled_at > moment
         -- bug: a scheduled job with a unique key is ready at once:
         --   | CASE WHEN unique_key IS NULL AND scheduled_at > moment
         --   |        AND scheduled_at > posthaste.promote_horizon()
         CASE WHEN scheduled_at > moment AND scheduled_at > posthaste.promote_horizon()
               AND scheduled_at > now()
      THEN posthaste.enter_scheduled()
                   ELSE posthaste.enter_ready()
                     + posthaste.notify(CASE WHEN ordering_key IS NULL THEN queue ELSE '' END,
                       posthaste.listeners()) END,
         CASE WHEN ordering_key IS NULL THEN queue ELSE '' END, name,
         CASE WHEN ordering_key IS NULL THEN priority ELSE 0 END, scheduled_at, expires_at, moment,
         tag, unique_key, kwargs, bytes, max_attempts, ordering_key,
         CASE WHEN ordering_key IS NOT NULL THEN queue END,
         CASE WHEN ordering_key IS NOT NULL THEN priority END, trace;
  RETURN job;
END $f$;

REVOKE EXECUTE ON FUNCTION
  posthaste.enqueue_slow(text, jsonb, text, integer, timestamptz, timestamptz, text, text, integer,
                          text, text, boolean) FROM PUBLIC;

-- Takes a key for a job. Returns the id of the job that now holds it, this one or another; NULL if
-- another transaction is taking it.
--
-- Waits for a millisecond, because Postgres offers no other way to learn that a row is in another
-- open transaction. An advisory lock per key would, but would fill the lock table for callers that
-- enqueue a hundred thousand of them. The attempt is a sub-transaction: hundreds of them in one
-- transaction slow down other sessions' snapshots more than as many calls of posthaste.enqueue.
CREATE OR REPLACE FUNCTION posthaste.take_key_nowait(p_key text, p_job bigint)
RETURNS bigint LANGUAGE plpgsql
SET lock_timeout = '1ms' SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_holder bigint;
BEGIN
  LOOP
    INSERT INTO posthaste.unique_key AS u (key, id) VALUES (p_key, p_job) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN p_job;
    END IF;
    SELECT u.id INTO v_holder FROM posthaste.unique_key u
     WHERE u.key = p_key COLLATE pg_catalog."C";
    IF FOUND THEN
      RETURN v_holder;
    END IF;
  END LOOP;
EXCEPTION WHEN lock_not_available THEN
  -- The lock may be that of the key or of the table.
  BEGIN
    RETURN (SELECT u.id FROM posthaste.unique_key u WHERE u.key = p_key COLLATE pg_catalog."C");
  EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
  END;
END $f$;

-- As posthaste.enqueue, for callers that must not wait for a transaction that is taking the same
-- unique key. Returns NULL if there is one, or if the table of keys was locked: nothing was
-- enqueued, and it is not known whether the other job will exist. A key whose job is ending in an
-- open transaction still counts as held and returns its holder. Jobs without a key are always
-- enqueued.
CREATE OR REPLACE FUNCTION posthaste.enqueue_nowait(
  name text, kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT 0,
  scheduled_at timestamptz DEFAULT now(), expires_at timestamptz DEFAULT NULL, tag text DEFAULT '',
  unique_key text DEFAULT NULL, max_attempts integer DEFAULT 25, ordering_key text DEFAULT NULL,
  trace text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
BEGIN
  IF unique_key IS NULL THEN
    RETURN posthaste.enqueue(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
        unique_key, max_attempts, ordering_key, trace);
  END IF;
  RETURN posthaste.enqueue_slow(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
      unique_key, max_attempts, ordering_key, trace, nowait => true);
END $f$;
