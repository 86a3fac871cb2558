-- Enqueue: the view posthaste.job takes INSERTs by one unconditional rule, so that INSERT ...
-- SELECT, RETURNING, savepoints, prepared transactions and all isolation levels work as on a table;
-- posthaste.enqueue() is a convenience over the same rows.

-- Where a log stands. A role that may not read it gets an error: newer servers answer NULL instead,
-- as all do for one that was never set, in a schema without its rows. posthaste.flags has no value
-- after a crash either.
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
-- The shared advisory lock is what sealing conflicts with: while it is held the segment cannot be
-- sealed. It is taken before the second look at ready_scan, so a segment that was sealed in between
-- is noticed and the newer one is taken: nobody waits, nothing fails. A foreign session that sits
-- on the key makes the try fail for ever, hence the waiting call after a while. In a restored
-- database the cursors may be of two moments, and the segment that is current sealed already; any
-- that is not sealed will do.
CREATE OR REPLACE FUNCTION posthaste.enter_ready() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := greatest(posthaste.position('posthaste.ready_current'),
        posthaste.position('posthaste.ready_scan'));
    IF pg_try_advisory_xact_lock_shared(1885893473, g::integer) THEN
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

-- The same for scheduled jobs, stricter: the transaction has its xid before it looks, and the
-- segment must still be the current one, so that a transaction that got its xid after a segment was
-- closed cannot be in it.
CREATE OR REPLACE FUNCTION posthaste.enter_scheduled() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  x xid8 := pg_current_xact_id();
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := posthaste.position('posthaste.scheduled_current');
    IF pg_try_advisory_xact_lock_shared(1885893474, g::integer) THEN
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

-- Up to when the promoter has looked. What is due by then must not be scheduled any more: it goes
-- to the ready log. Read after the transaction has its xid, so that each scheduled row is either
-- due later than the promoter's last look or belongs to a transaction that the promoter knows to
-- look after. No clock decides this: a clock that steps back makes jobs run early, but loses none.
-- It is read before enter_scheduled() asks which segment is current: that is what
-- posthaste.step_back() relies on, which the leader does as soon as it is notified here.
CREATE OR REPLACE FUNCTION posthaste.promote_horizon() RETURNS timestamptz LANGUAGE plpgsql AS $f$
DECLARE
  x xid8 := pg_current_xact_id();
  v_published bigint := pg_sequence_last_value('posthaste.promote_horizon'::regclass);
  v_until timestamptz := to_timestamp(v_published::double precision / 1000000::double precision);
BEGIN
  IF v_until > clock_timestamp() + interval '1 s' THEN
    PERFORM posthaste.notify('', posthaste.listeners());
  END IF;
  RETURN v_until;
END $f$;

-- The queue of a job that was enqueued without one.
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

-- The queue of one job, notified when it is due: for enqueues that found a flag.
CREATE OR REPLACE FUNCTION posthaste.way(queue text, name text, due boolean)
RETURNS text LANGUAGE plpgsql AS $f$
BEGIN
  queue := coalesce(queue, CASE WHEN posthaste.position('posthaste.flags') & 1::bigint = 0
                                THEN 'default' ELSE posthaste.route_of(name) END);
  IF due THEN
    PERFORM posthaste.notify(queue, posthaste.listeners());
  END IF;
  RETURN queue;
END $f$;

-- Enqueues one job in the caller's transaction and returns its id. With a unique_key that another
-- job holds, nothing is enqueued and that job's id is returned; the call waits for a transaction
-- that is just claiming the same key. Under REPEATABLE READ and SERIALIZABLE a key that was taken
-- after the snapshot gives a serialization failure (40001), as for any unique index.
--
-- A plain job that is due is judged by the very statement that writes it: each expression that
-- PL/pgSQL evaluates by itself takes a snapshot, and snapshots are what concurrent commits make
-- dear. Only its size is measured before: as a part of the statement, a number bomb might be
-- printed by the planner. What is volatile comes from the columns' defaults. The guard is
-- enter_ready() without the call, as a CASE because the planner may turn the parts of an AND
-- around. No row written means that the job is not plain or not valid, or that the segment is just
-- being sealed: enqueue_other() finds out. It runs under its caller's path: what it calls is exact
-- or qualified (sql/README.md).
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
  SELECT (c.g % 4::bigint)::smallint, c.way, name, priority, scheduled_at,
         coalesce(expires_at, now() + interval '30 days'), tag, kwargs, bytes, max_attempts,
         trace
    FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g,
                 CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) = 0
                     THEN coalesce(queue, 'default')
                     ELSE posthaste.way(queue, name, scheduled_at <= clock_timestamp()) END AS way
          OFFSET 0) c
   WHERE unique_key IS NULL AND ordering_key IS NULL AND priority IS NOT NULL
     AND scheduled_at <= clock_timestamp()
     AND posthaste.is_valid(name, c.way, tag, NULL, NULL, kwargs, bytes, 0, max_attempts,
         scheduled_at, coalesce(expires_at, scheduled_at), scheduled_at, trace)
     AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
              THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END
  RETURNING r.id INTO job;
  RETURN coalesce(job,
      posthaste.enqueue_other(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
                                                 unique_key, max_attempts,
                                                 ordering_key, trace));
END $f$;

-- Any job: with arguments left NULL, scheduled, with a key, or one that has to be refused. With
-- nowait, NULL for a key that somebody is just taking. It runs with its owner's rights: a job with
-- a key is written with the id that its key was taken under, and who may give a job an id could
-- give it that of another one, by which receivers drop what they have had. A job without a time is
-- due, also where the clock has stepped back since the transaction began: hence now().
CREATE OR REPLACE FUNCTION posthaste.enqueue_other(
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
      EXIT WHEN FOUND;
      -- Whatever the collation of the column is that was given.
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
  posthaste.enqueue_other(text, jsonb, text, integer, timestamptz, timestamptz, text, text, integer,
                          text, text, boolean) FROM PUBLIC;

-- A unique key without waiting. Locks: creates functions only.

-- Takes a key for a job. Returns who holds it now, this job or another; NULL: another transaction
-- is just taking it.
--
-- It waits for a millisecond, because Postgres tells in no other way that a row is in somebody's
-- open transaction; an advisory lock per key would tell at once, and fill the lock table of who
-- enqueues a hundred thousand of them. The attempt is a sub-transaction: hundreds in one
-- transaction cost its neighbours' snapshots more than as many calls of posthaste.enqueue.
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
  -- Of the key, or of the table.
  BEGIN
    RETURN (SELECT u.id FROM posthaste.unique_key u WHERE u.key = p_key COLLATE pg_catalog."C");
  EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
  END;
END $f$;

-- As posthaste.enqueue, for who must not wait for a transaction that is just taking the same unique
-- key. NULL means that there is such a one, or that the table of keys was locked for a moment:
-- nothing was enqueued, and nobody knows yet whether its job will exist. A key whose job is just
-- ending in an open transaction is held still: its holder comes back. Only the key is not waited
-- for: a job without one is always enqueued, and who has the key enqueues as ever.
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
  RETURN posthaste.enqueue_other(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
      unique_key, max_attempts, ordering_key, trace, nowait => true);
END $f$;
