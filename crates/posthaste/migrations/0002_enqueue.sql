-- Enqueue: the view posthaste.job takes INSERTs by one unconditional rule, so that INSERT ... SELECT, RETURNING, savepoints, prepared
-- transactions and all isolation levels work as on a table; posthaste.enqueue() is a convenience over the same rows.

-- Where a ring stands. A role that may not read it is told so: newer servers answer NULL instead.
CREATE FUNCTION posthaste.position(cell regclass) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v bigint := pg_sequence_last_value(cell);
BEGIN
  IF v IS NULL THEN
    RAISE EXCEPTION 'posthaste: permission denied for sequence %', cell USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN v;
END $f$;

-- Enters the current generation of the ready ring for the rest of the transaction and returns its slot.
-- The shared advisory lock is what sealing conflicts with: while it is held the generation cannot be sealed. It is taken before the second
-- look at ready_scan, so a generation that was sealed in between is noticed and the newer one is taken: nobody waits, nothing fails.
-- A foreign session that sits on the key makes the try fail for ever, hence the waiting call after a while. In a restored database the cursors
-- may be of two moments, and the generation that is current sealed already; any that is not sealed will do.
CREATE FUNCTION posthaste.enter_ready() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := greatest(posthaste.position('posthaste.ready_current'), posthaste.position('posthaste.ready_scan'));
    IF pg_try_advisory_xact_lock_shared(1885893473, g::integer) THEN
      IF posthaste.position('posthaste.ready_scan') <= g THEN
        RETURN g % 4;
      END IF;
    ELSE
      tries := tries + 1;
      IF tries > 100 THEN
        PERFORM pg_advisory_xact_lock_shared(1885893473, g::integer);
      END IF;
    END IF;
  END LOOP;
END $f$;

-- The same for parked jobs, stricter: the transaction has its xid before it looks, and the generation must still be the current one, so that
-- whoever got an xid after a generation was closed cannot be in it.
CREATE FUNCTION posthaste.enter_parked() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  x xid8 := pg_current_xact_id();
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := posthaste.position('posthaste.parked_current');
    IF pg_try_advisory_xact_lock_shared(1885893474, g::integer) THEN
      IF posthaste.position('posthaste.parked_current') = g THEN
        PERFORM posthaste.ring_for('', posthaste.bell());
        RETURN 6 + g % 2;
      END IF;
    ELSE
      tries := tries + 1;
      IF tries > 100 THEN
        PERFORM pg_advisory_xact_lock_shared(1885893474, g::integer);
      END IF;
    END IF;
  END LOOP;
END $f$;

-- Up to when the promoter has looked. What is due by then must not be parked any more: it goes to the ready ring. Read after the transaction
-- has its xid, so that each parked row is either due later than the promoter's last look or belongs to a transaction that the promoter
-- knows to look after. No clock decides this: a clock that steps back makes jobs run early, but loses none.
CREATE FUNCTION posthaste.parked_until() RETURNS timestamptz LANGUAGE plpgsql AS $f$
DECLARE
  x xid8 := pg_current_xact_id();
BEGIN
  RETURN to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
END $f$;

-- What the view shows and does not take: a unique key needs a look before the row is written, which a rule cannot take; the rest is the store's.
CREATE FUNCTION posthaste.refuse_field(field text) RETURNS smallint LANGUAGE plpgsql AS $f$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
    MESSAGE = 'posthaste: ' || field || ': the view posthaste.job does not take it'
              || CASE WHEN field = 'unique_key' THEN '; call posthaste.enqueue()' ELSE '' END;
END $f$;

-- The queue of a job that was enqueued without one.
CREATE FUNCTION posthaste.route_of(name text) RETURNS text LANGUAGE plpgsql STABLE AS $f$
BEGIN
  RETURN coalesce((SELECT t.queue FROM posthaste.route t
                    WHERE t.pattern = name OR (right(t.pattern, 1) = '*' AND starts_with(name, left(t.pattern, -1)))
                    ORDER BY t.pattern = name DESC, length(t.pattern) DESC LIMIT 1), 'default');
END $f$;

-- The bell. Who works on a queue and sleeps sets its bit in posthaste.flags (0017_bell.sql), looks once more, and is woken by NOTIFY when a
-- transaction that has seen the bit commits. So a commit pays for NOTIFY, which lets only one such commit go at a time, once per sleep and
-- not once per job. An enqueuer never takes a bit back: one that rolls back, or stays open, would keep everybody asleep.

-- The bit of a queue. Queues share 61 of them: who shares one with another is rung for too often. The leader's queue is ''.
CREATE FUNCTION posthaste.bell_of(queue text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN queue = '' THEN 2::bigint ELSE 4::bigint << ((hashtext(queue) & 2147483647) % 61) END
$f$;

-- Which bells are to be rung by this transaction. None after SET posthaste.bell = off: PREPARE TRANSACTION refuses whoever has rung.
CREATE FUNCTION posthaste.bell() RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_flags bigint := posthaste.position('posthaste.flags');
BEGIN
  IF v_flags < 2 OR lower(current_setting('posthaste.bell', true)) IN ('off', 'false', 'no', '0')
     OR posthaste.position('posthaste.bell_until') < extract(epoch FROM clock_timestamp()) THEN
    RETURN 0;
  END IF;
  RETURN v_flags;
END $f$;

-- Rings for a queue, if that is among the bells to be rung; 0, to be added where a row is given its slot. One of the expression's two ends is never
-- reached; it is there because what returns nothing can be tested only. The planner inlines it.
CREATE FUNCTION posthaste.ring_for(queue text, bell bigint) RETURNS smallint LANGUAGE sql AS $f$
  SELECT CASE WHEN bell & posthaste.bell_of(queue) = 0 OR pg_notify('posthaste', left(queue, 255)) IS NULL THEN 0::smallint ELSE 0::smallint END
$f$;

-- The queue of one job, rung for when it is due: for enqueues that found a flag.
CREATE FUNCTION posthaste.way(queue text, name text, due boolean) RETURNS text LANGUAGE plpgsql AS $f$
BEGIN
  queue := coalesce(queue, CASE WHEN posthaste.position('posthaste.flags') & 1 = 0 THEN 'default' ELSE posthaste.route_of(name) END);
  IF due THEN
    PERFORM posthaste.ring_for(queue, posthaste.bell());
  END IF;
  RETURN queue;
END $f$;

-- Whether the promoter is past a parked row, given its newest page (0007_scheduled.sql says what the fields mean).
CREATE FUNCTION posthaste.promoted(xid xid8, due timestamptz, id bigint, t_lo timestamptz, t_hi timestamptz, lo pg_snapshot, hi pg_snapshot,
                                   at_xid xid8, at_due timestamptz, at_id bigint, late_done boolean, exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT CASE
    WHEN due <= t_lo AND pg_visible_in_snapshot(xid, lo) THEN true
    WHEN due > t_hi OR NOT pg_visible_in_snapshot(xid, hi) THEN false
    WHEN exhausted THEN true
    WHEN due <= t_lo THEN late_done OR (xid, due, id) <= (at_xid, at_due, at_id)
    ELSE late_done AND (due, id) <= (at_due, at_id)
  END
$f$;

-- Every job that is not done, with its state: claimable, waiting (for its turn), scheduled, retrying, running, awaiting, suspect, expired, dead, discarded, cancelled.
-- For people and reports: it reads whole slots. It names each slot instead of the partitioned parent, so that a reader locks no more
-- than it reads. Reading it in a transaction that stays open keeps generations from being truncated; claims do not care.
DO $do$
BEGIN
  EXECUTE 'CREATE VIEW posthaste.job (id, name, queue, priority, scheduled_at, expires_at, enqueued_at, tag, kwargs, unique_key, ordering_key, attempt, max_attempts, state, last_error) AS'
    || (SELECT string_agg(replace($arm$
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs,
         r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'waiting' ELSE 'claimable' END, r.last_error
    FROM posthaste.ready_@k@ r
    LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid, to_id, exhausted
                 FROM posthaste.claim_@k@ ORDER BY queue, priority, batch DESC) c ON (c.queue, c.priority) = (r.queue, r.priority)
   WHERE NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE (e.xid, e.id) = (r.xid, r.id)) AND (r.queue <> '' OR r.turn IS NULL)
     AND (c.queue IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
          OR (pg_visible_in_snapshot(r.xid, c.hi) AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
  UNION ALL
  SELECT r.id, r.name, r.queue, r.priority, r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts, 'running', r.last_error
    FROM posthaste.running_@k@() r
  UNION ALL$arm$, '@k@', k::text), '' ORDER BY k) FROM generate_series(0, 5) k)
    || (SELECT string_agg(replace($arm$
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), CASE WHEN r.scheduled_at = '9999-01-01Z' THEN r.enqueued_at ELSE r.scheduled_at END, r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.scheduled_at = '9999-01-01Z' THEN 'waiting' WHEN r.attempt > 0 THEN 'retrying' ELSE 'scheduled' END, r.last_error
    FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
   WHERE NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE (e.xid, e.id) = (r.xid, r.id))
     AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted), false)
  UNION ALL$arm$, '@k@', k::text), '' ORDER BY k) FROM generate_series(6, 7) k)
    || $arm$
  SELECT h.id, h.name, h.queue, h.priority, h.scheduled_at, h.expires_at, h.enqueued_at, h.tag, h.kwargs, h.unique_key, h.ordering_key, h.attempt, h.max_attempts, h.state, h.last_error
    FROM posthaste.held h
  UNION ALL
  SELECT d.id, d.name, d.queue, d.priority, d.scheduled_at, d.expires_at, d.enqueued_at, d.tag, d.kwargs, d.unique_key, d.ordering_key, d.attempt, d.max_attempts, d.state, d.last_error
    FROM posthaste.dead d$arm$;
END $do$;

ALTER VIEW posthaste.job ALTER COLUMN priority     SET DEFAULT 0;
ALTER VIEW posthaste.job ALTER COLUMN scheduled_at SET DEFAULT now();
ALTER VIEW posthaste.job ALTER COLUMN tag          SET DEFAULT '';
ALTER VIEW posthaste.job ALTER COLUMN kwargs       SET DEFAULT '{}';
ALTER VIEW posthaste.job ALTER COLUMN attempt      SET DEFAULT 0;
ALTER VIEW posthaste.job ALTER COLUMN max_attempts SET DEFAULT 25;

-- Each OFFSET 0 keeps expressions from being evaluated twice (a volatile scheduled_at would be judged by one value and stored as another). The
-- scalar sub-selects without a reference to the row run once per statement, and only when a row needs them: ten million rows
-- enter their generation once. The last of them is enter_ready() without the call, for the case that nothing is just being sealed.
CREATE RULE enqueue AS ON INSERT TO posthaste.job DO INSTEAD
  INSERT INTO posthaste.store (slot, queue, name, priority, scheduled_at, expires_at, enqueued_at, tag, kwargs, kwargs_bytes, attempt, max_attempts,
                               ordering_key, own_queue, own_priority)
  SELECT CASE WHEN r.refused IS NOT NULL THEN posthaste.refuse_field(r.refused)
              WHEN posthaste.is_valid(r.name, r.queue, r.tag, NULL, r.ordering_key, r.kwargs, r.kwargs_bytes, r.attempt, r.max_attempts, r.scheduled_at, r.expires_at, r.enqueued_at) IS NOT TRUE THEN
                   posthaste.refuse(r.name, r.queue, r.tag, NULL, r.ordering_key, r.kwargs, r.kwargs_bytes, r.attempt, r.max_attempts, r.scheduled_at, r.expires_at, r.enqueued_at)
              WHEN r.scheduled_at > clock_timestamp() AND r.scheduled_at > (SELECT posthaste.parked_until()) THEN (SELECT posthaste.enter_parked())
              ELSE (SELECT CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer) AND pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g
                                THEN (c.g % 4)::smallint ELSE posthaste.enter_ready() END
                      FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g OFFSET 0) c)
                   + CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) < 2 THEN 0::smallint
                          ELSE posthaste.ring_for(CASE WHEN r.ordering_key IS NULL THEN r.queue ELSE '' END, (SELECT posthaste.bell())) END END,
         CASE WHEN r.ordering_key IS NULL THEN r.queue ELSE '' END, r.name, CASE WHEN r.ordering_key IS NULL THEN r.priority ELSE 0 END, r.scheduled_at, r.expires_at,
         r.enqueued_at, r.tag, r.kwargs, r.kwargs_bytes, r.attempt, r.max_attempts, r.ordering_key, CASE WHEN r.ordering_key IS NOT NULL THEN r.queue END,
         CASE WHEN r.ordering_key IS NOT NULL THEN r.priority END
    FROM (SELECT n.name, n.priority, n.ordering_key, n.scheduled_at, n.tag, n.kwargs, n.refused, n.attempt, n.max_attempts, posthaste.text_bytes(n.kwargs) AS kwargs_bytes,
                 coalesce(n.expires_at, greatest(n.scheduled_at, clock_timestamp()) + interval '30 days') AS expires_at, coalesce(n.enqueued_at, clock_timestamp()) AS enqueued_at,
                 coalesce(n.queue, CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) & 1 = 0 THEN 'default' ELSE posthaste.route_of(n.name) END) AS queue
            FROM (SELECT NEW.queue, coalesce(NEW.name, '') AS name, coalesce(NEW.priority, 0) AS priority, coalesce(NEW.scheduled_at, now()) AS scheduled_at, NEW.expires_at,
                         NEW.enqueued_at, coalesce(NEW.tag, '') AS tag, coalesce(NEW.kwargs, '{}') AS kwargs, coalesce(NEW.attempt, 0) AS attempt,
                         NEW.max_attempts, NEW.ordering_key,
                         CASE WHEN NEW.unique_key IS NOT NULL THEN 'unique_key' WHEN NEW.id IS NOT NULL THEN 'id'
                              WHEN NEW.state IS NOT NULL THEN 'state' WHEN NEW.last_error IS NOT NULL THEN 'last_error' END AS refused OFFSET 0) n OFFSET 0) r
  RETURNING id, name, coalesce(own_queue, queue), coalesce(own_priority, priority), scheduled_at, expires_at, enqueued_at, tag, kwargs, unique_key,
            ordering_key, attempt, max_attempts,
            CASE WHEN slot >= 6 THEN 'scheduled' WHEN ordering_key IS NOT NULL THEN 'waiting' ELSE 'claimable' END, last_error;

-- Enqueues one job in the caller's transaction and returns its id. With a unique_key that another job holds, nothing is enqueued and that job's id is
-- returned; the call waits for a transaction that is just claiming the same key. Under REPEATABLE READ and SERIALIZABLE a key that was
-- taken after the snapshot gives a serialization failure (40001), as for any unique index.
--
-- A plain job that is due is judged by the very statement that writes it: each expression that PL/pgSQL evaluates by itself takes a snapshot,
-- and snapshots are what concurrent commits make dear. Only its size is measured before: as a part of the statement, a number bomb might be
-- printed by the planner. What is volatile comes from the columns' defaults. The guard is enter_ready() without the call, as a CASE
-- because the planner may turn the parts of an AND around. No row written means that the job is not plain or not valid, or that the
-- generation is just being sealed: enqueue_other() finds out.
CREATE FUNCTION posthaste.enqueue(name text, kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT 0,
                                  scheduled_at timestamptz DEFAULT now(), expires_at timestamptz DEFAULT NULL, tag text DEFAULT '',
                                  unique_key text DEFAULT NULL, max_attempts integer DEFAULT 25, ordering_key text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  job bigint;
  bytes integer := posthaste.text_bytes(kwargs);
BEGIN
  INSERT INTO posthaste.store AS r (slot, queue, name, priority, scheduled_at, expires_at, tag, kwargs, kwargs_bytes, max_attempts)
  SELECT (c.g % 4)::smallint, c.way, name, priority, scheduled_at, coalesce(expires_at, now() + interval '30 days'), tag, kwargs, bytes, max_attempts
    FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g,
                 CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) = 0 THEN coalesce(queue, 'default') ELSE posthaste.way(queue, name, scheduled_at <= clock_timestamp()) END AS way
          OFFSET 0) c
   WHERE unique_key IS NULL AND ordering_key IS NULL AND priority IS NOT NULL AND scheduled_at <= clock_timestamp()
     AND posthaste.is_valid(name, c.way, tag, NULL, NULL, kwargs, bytes, 0, max_attempts, scheduled_at, coalesce(expires_at, scheduled_at), scheduled_at)
     AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
              THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END
  RETURNING r.id INTO job;
  RETURN coalesce(job, posthaste.enqueue_other(name, kwargs, queue, priority, scheduled_at, expires_at, tag, unique_key, max_attempts,
                                                 ordering_key));
END $f$;

-- Any job: with arguments left NULL, scheduled, with a key, or one that has to be refused. With nowait, NULL for a key that somebody is just taking.
CREATE FUNCTION posthaste.enqueue_other(name text, kwargs jsonb, queue text, priority integer, scheduled_at timestamptz, expires_at timestamptz, tag text,
                                        unique_key text, max_attempts integer, ordering_key text, nowait boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  job bigint;
  holder bigint;
  bytes integer;
  moment timestamptz := clock_timestamp();
BEGIN
  name := coalesce(name, ''); kwargs := coalesce(kwargs, '{}');
  queue := coalesce(queue, CASE WHEN posthaste.position('posthaste.flags') & 1 = 0 THEN 'default' ELSE posthaste.route_of(name) END); priority := coalesce(priority, 0); scheduled_at := coalesce(scheduled_at, now());
  expires_at := coalesce(expires_at, greatest(scheduled_at, moment) + interval '30 days'); tag := coalesce(tag, ''); bytes := posthaste.text_bytes(kwargs);
  IF posthaste.is_valid(name, queue, tag, unique_key, ordering_key, kwargs, bytes, 0, max_attempts, scheduled_at, expires_at, moment) IS NOT TRUE THEN
    PERFORM posthaste.refuse(name, queue, tag, unique_key, ordering_key, kwargs, bytes, 0, max_attempts, scheduled_at, expires_at, moment);
  END IF;
  job := nextval('posthaste.job_id');
  IF unique_key IS NOT NULL AND nowait THEN
    holder := posthaste.take_key_nowait(unique_key, job);
    IF holder IS DISTINCT FROM job THEN
      RETURN holder;
    END IF;
  ELSIF unique_key IS NOT NULL THEN
    LOOP
      INSERT INTO posthaste.unique_key AS u (key, id) VALUES (unique_key, job) ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
      SELECT u.id INTO holder FROM posthaste.unique_key u WHERE u.key = unique_key;
      IF FOUND THEN
        RETURN holder;
      END IF;
    END LOOP;
  END IF;
  INSERT INTO posthaste.store (id, slot, queue, name, priority, scheduled_at, expires_at, enqueued_at, tag, unique_key, kwargs, kwargs_bytes, max_attempts,
                               ordering_key, own_queue, own_priority)
  SELECT job, CASE WHEN scheduled_at > moment AND scheduled_at > posthaste.parked_until() THEN posthaste.enter_parked()
                   ELSE posthaste.enter_ready() + posthaste.ring_for(CASE WHEN ordering_key IS NULL THEN queue ELSE '' END, posthaste.bell()) END,
         CASE WHEN ordering_key IS NULL THEN queue ELSE '' END, name, CASE WHEN ordering_key IS NULL THEN priority ELSE 0 END, scheduled_at, expires_at, moment,
         tag, unique_key, kwargs, bytes, max_attempts, ordering_key, CASE WHEN ordering_key IS NOT NULL THEN queue END,
         CASE WHEN ordering_key IS NOT NULL THEN priority END;
  RETURN job;
END $f$;

-- The id that a receiver outside sees and drops duplicates by: the incarnation that the job's id belongs to and the id, shaped as a UUID (version 8).
CREATE FUNCTION posthaste.delivery_of(incarnation text, job_id bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $f$
  SELECT (substr(incarnation, 1, 12) || '8' || substr(incarnation, 13, 3) || 'a' || lpad(to_hex(job_id), 15, '0'))::uuid
$f$;
CREATE FUNCTION posthaste.delivery_id(job_id bigint) RETURNS uuid LANGUAGE sql STABLE AS $f$
  SELECT posthaste.delivery_of(i.value, job_id) FROM posthaste.incarnation i WHERE i.first_id <= job_id ORDER BY i.n DESC LIMIT 1
$f$;
