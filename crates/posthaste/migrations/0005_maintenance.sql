-- Maintenance, in one file beyond 400 lines because its duties guard one another: the elected duties. Each call is one short transaction; each duty has an advisory lock of its own, so that a second leader
-- finds it taken and goes on. Nothing here waits for a user's transaction: locks are tried, not awaited, and rows are skipped.
--
-- Duty locks (1885893476, n): 1 the ring (rotate, seal, aside, reclaim)   2 the parked slots   3 rescue   4 expiry

DO $do$
BEGIN
  FOR k IN 0..5 LOOP
    EXECUTE replace($sql$

-- Locks the slot against posthaste.enqueue(), if nobody is just writing into it.
CREATE FUNCTION posthaste.lock_@k@() RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  LOCK TABLE posthaste.ready_@k@ IN SHARE MODE NOWAIT;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;

-- Whether a lane of this slot has jobs that were not claimed yet.
CREATE FUNCTION posthaste.pending_@k@(p_queue text, p_priority integer) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_@k@;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- the lane was found by a row of it, and nothing was ever claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_@k@ r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_@k@ r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_@k@ r WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;

-- The first lane of this slot that has jobs that were not claimed yet. One index probe leads from lane to lane.
CREATE FUNCTION posthaste.pending_lane_@k@(OUT o_queue text, OUT o_priority integer) LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := 0;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_@k@ r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_@k@(o_queue, o_priority);
  END LOOP;
END $f$;

-- Moves up to p_limit unclaimed jobs of a lane to slot p_to, in the lane's order, by claiming them as nobody.
CREATE FUNCTION posthaste.move_@k@(p_queue text, p_priority integer, p_to smallint, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint := (SELECT o_batch FROM posthaste.claim_@k@(p_queue, p_priority, 0, v_token, p_limit, 67108864));
  v_rows bigint;
BEGIN
  INSERT INTO posthaste.store (slot, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, queue, name, tag, unique_key, last_error, kwargs)
  SELECT p_to, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt, r.max_attempts, r.kwargs_bytes, r.crashes, r.queue, r.name, r.tag, r.unique_key, r.last_error, r.kwargs
    FROM posthaste.batch_rows_@k@(v_batch, v_token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id);
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  INSERT INTO posthaste.whole_@k@ (batch, outcome) SELECT v_batch, 5 WHERE v_batch IS NOT NULL;
  RETURN v_rows;
END $f$;

-- Compares rows, never counts: looks at batches after p_batch, at most p_batches of them, and stops at the first that has a job which nobody has
-- closed. In a sealed slot every job belongs to a batch. o_batch is where to go on next time (everything up to it is closed for good), o_done
-- that the end was reached.
CREATE FUNCTION posthaste.verify_@k@(p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean) LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch) FROM (SELECT batch FROM posthaste.claim_@k@ WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_@k@ c WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.whole_@k@ w WHERE w.batch = c.batch) OFFSET 0) c
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_@k@(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_@k@ WHERE batch > o_batch);
END $f$;

-- Moves jobs that are still being worked out of this slot: each gets a row in posthaste.held under the fence it has, so that its worker
-- finishes it there. A row that somebody else is just closing is left to them.
CREATE FUNCTION posthaste.hold_@k@(p_batch bigint, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_held bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_@k@ c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.whole_@k@ w WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_@k@(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id) LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.held (id, enqueued_at, scheduled_at, expires_at, worker, token, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
      SELECT j.id, j.enqueued_at, j.scheduled_at, j.expires_at, v_open.worker, v_open.token, j.priority, j.attempt, j.max_attempts, j.kwargs_bytes, j.crashes, 'running',
             j.queue, j.name, j.tag, j.unique_key, j.last_error, j.kwargs
        FROM posthaste.close_@k@(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j;
      IF FOUND THEN
        v_held := v_held + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_held;
END $f$;

-- Empties the slot, or says who holds it: the pid of a session that has had a lock on it for more than a second, or 0 for a passing one.
CREATE FUNCTION posthaste.truncate_@k@() RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  v_blocker integer := (
    SELECT l.pid FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
     WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.relation IN ('posthaste.ready_@k@'::regclass, 'posthaste.claim_@k@'::regclass, 'posthaste.ack_@k@'::regclass, 'posthaste.early_@k@'::regclass,
                          'posthaste.whole_@k@'::regclass, 'posthaste.split_@k@'::regclass)
       AND l.pid IS DISTINCT FROM pg_backend_pid() AND coalesce(a.xact_start, '-infinity') < clock_timestamp() - interval '1 s' LIMIT 1);
BEGIN
  IF v_blocker IS NOT NULL THEN
    RETURN v_blocker;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_@k@, posthaste.claim_@k@, posthaste.ack_@k@, posthaste.early_@k@, posthaste.whole_@k@, posthaste.split_@k@ IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
  END;
  TRUNCATE posthaste.ready_@k@, posthaste.claim_@k@, posthaste.ack_@k@, posthaste.early_@k@, posthaste.whole_@k@, posthaste.split_@k@;
  RETURN NULL;
END $f$;

-- Finds jobs that expired unclaimed, and closes them early: claims skip such rows. Jobs that are running are left to their worker.
CREATE FUNCTION posthaste.expire_@k@(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_rows bigint;
  v_all bigint := 0;
BEGIN
  -- Each lane costs the transaction a lock. Any hundred of them: those whose expired jobs are running keep coming up and must not crowd out the others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_@k@ r
       WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)) lane
     ORDER BY random() LIMIT 100
  LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(v_lane.queue, v_lane.priority));
    WITH gone AS MATERIALIZED (
      SELECT r.* FROM posthaste.ready_@k@ r
        LEFT JOIN (SELECT * FROM posthaste.claim_@k@ WHERE queue = v_lane.queue AND priority = v_lane.priority
                    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1) c ON true
       WHERE r.queue = v_lane.queue AND r.priority = v_lane.priority AND r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)
         AND (c.batch IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
              OR (pg_visible_in_snapshot(r.xid, c.hi) AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
       LIMIT p_limit),
    closed AS (INSERT INTO posthaste.ack_@k@ (xid, id, outcome) SELECT xid, id, 3 FROM gone),
    early AS (INSERT INTO posthaste.early_@k@ (xid, id) SELECT xid, id FROM gone),
    freed AS (DELETE FROM posthaste.unique_key u USING gone g WHERE u.key = g.unique_key AND u.id = g.id)
    INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
    SELECT id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, 'expired', queue, name, tag, unique_key, last_error, kwargs
      FROM gone ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_all := v_all + v_rows;
  END LOOP;
  RETURN v_all;
END $f$;

-- Takes up to all open jobs of a dead worker's batch away from it; they wait as suspects, to be run alone once.
CREATE FUNCTION posthaste.suspect_@k@(p_batch bigint, p_token uuid, p_ids bigint[]) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_rows bigint;
BEGIN
  INSERT INTO posthaste.held (id, until, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
  SELECT j.id, clock_timestamp(), j.enqueued_at, j.scheduled_at, j.expires_at, j.priority, j.attempt, j.max_attempts, j.kwargs_bytes, j.crashes + 1, 'suspect',
         j.queue, j.name, j.tag, j.unique_key, 'its worker died while it had this job', j.kwargs
    FROM posthaste.close_@k@(p_batch, p_token, p_ids, array_fill(7::smallint, ARRAY[cardinality(p_ids)])) j;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
EXCEPTION WHEN lock_not_available THEN
  RETURN NULL;  -- somebody's open transaction is closing one of them
END $f$
$sql$, '@k@', k::text);
  END LOOP;

  FOR k IN 6..7 LOOP
    EXECUTE replace(replace($sql$

-- Transactions whose parked rows may be due by t_lo although they were not visible in lo, and that have ended by now: those that ran when lo was
-- taken. A snapshot does not name a running transaction whose xid is not below its xmax, hence the second part, up to the
-- bound from which on transactions saw t_lo themselves.
CREATE FUNCTION posthaste.late_@k@(p_lo pg_snapshot, p_hi pg_snapshot, p_bound xid8, p_at xid8) RETURNS xid8[] LANGUAGE plpgsql AS $f$
DECLARE
  v_late xid8[] := ARRAY(SELECT p FROM pg_snapshot_xip(p_lo) p
                          WHERE p >= p_at AND pg_visible_in_snapshot(p, p_hi) AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  v_next xid8;
BEGIN
  SELECT r.xid INTO v_next FROM posthaste.parked_@k@ r WHERE r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  WHILE v_next IS NOT NULL LOOP
    IF pg_visible_in_snapshot(v_next, p_hi) THEN
      v_late := v_late || v_next;
    END IF;
    SELECT r.xid INTO v_next FROM posthaste.parked_@k@ r WHERE r.xid > v_next AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  END LOOP;
  RETURN v_late;
END $f$;

-- Promotes one page of parked jobs that are due, at most p_limit, and returns their number.
-- A pass is the set {due by t_hi and visible in hi} without {due by t_lo and visible in lo}, its predecessors' set: no row is promoted twice, and
-- none is missed however late its transaction commits. First come the late rows (due by t_lo, but not visible in lo), transaction by transaction,
-- then what became due since, in the order (scheduled_at, id): ten million jobs of one instant are paged like any others.
-- p_final ends a generation: t_hi is infinity, and what is not due yet goes to the current parked slot.
CREATE FUNCTION posthaste.promote_@k@(p_limit integer, p_final boolean) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz := to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
  c posthaste.pass_@k@;
  v_late xid8[] := '{}';
  v_early boolean;
  v_page bigint := 0;
  v_rows bigint;
BEGIN
  SELECT * INTO c FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    c.page := 0; c.t_hi := '-infinity'; c.hi := '1:1:'; c.hi_bound := '0'; c.exhausted := true; c.promoted := 0;
  END IF;
  IF c.exhausted THEN
    -- A look first: a pass that finds nothing costs no xid and writes nothing.
    v_late := posthaste.late_@k@(c.hi, pg_current_snapshot(), c.hi_bound, '0');
    IF cardinality(v_late) < 8
       AND NOT EXISTS (SELECT FROM unnest(v_late) x, LATERAL (SELECT FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_hi LIMIT 1) late)
       AND (CASE WHEN p_final THEN NOT EXISTS (SELECT FROM posthaste.parked_@k@ r WHERE r.scheduled_at > c.t_hi) ELSE v_until <= c.t_hi END)
       AND clock_timestamp() - v_now < interval '2 ms' THEN
      RETURN 0;
    END IF;
    c.t_lo := c.t_hi; c.lo := c.hi; c.lo_bound := c.hi_bound; c.at_xid := '0'; c.at_due := '-infinity'; c.at_id := 0; c.late_done := false;
    c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;
    -- v_until was told to enqueuers, and a generation that is final was left by parked_current, before this transaction got its xid: whoever
    -- has a later one knew it.
    c.hi_bound := pg_current_xact_id();
    c.hi := posthaste.cursor_snapshot();
  END IF;
  IF NOT c.late_done THEN
    v_late := posthaste.late_@k@(c.lo, c.hi, c.lo_bound, c.at_xid);
  END IF;
  v_early := EXISTS (SELECT FROM posthaste.early_@k@);

  IF NOT c.late_done AND cardinality(v_late) > 0 THEN
    WITH due AS MATERIALIZED (
      SELECT r.*, v_early AND EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id) AS early
        FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END, CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
    @move@
    SELECT count(*) INTO v_page FROM due;
    IF v_page = p_limit THEN
      SELECT d.xid, d.scheduled_at, d.id INTO c.at_xid, c.at_due, c.at_id FROM (
      SELECT r.*, v_early AND EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id) AS early
        FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END, CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) d ORDER BY d.xid DESC, d.scheduled_at DESC, d.id DESC LIMIT 1;
    END IF;
  END IF;

  IF v_page < p_limit THEN
    IF NOT c.late_done THEN
      c.late_done := true; c.at_due := c.t_lo; c.at_id := 9223372036854775807;
    END IF;
    WITH due AS MATERIALIZED (
      SELECT r.*, v_early AND EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id) AS early
        FROM posthaste.parked_@k@ r
       WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id) AND r.scheduled_at <= c.t_hi AND pg_visible_in_snapshot(r.xid, c.hi)
       ORDER BY r.scheduled_at, r.id LIMIT p_limit - v_page),
    @move@
    SELECT count(*), coalesce(max(d.scheduled_at), c.at_due), coalesce((SELECT l.id FROM due l ORDER BY l.scheduled_at DESC, l.id DESC LIMIT 1), c.at_id)
      INTO v_rows, c.at_due, c.at_id FROM due d;
    c.exhausted := v_rows < p_limit - v_page;
    v_page := v_page + v_rows;
  ELSE
    c.exhausted := false;
  END IF;

  INSERT INTO posthaste.pass_@k@ (page, t_lo, t_hi, at_xid, at_due, at_id, promoted, late_done, exhausted, lo_bound, hi_bound, lo, hi)
  VALUES (c.page + 1, c.t_lo, c.t_hi, c.at_xid, c.at_due, c.at_id, c.promoted + v_page, c.late_done, c.exhausted, c.lo_bound, c.hi_bound, c.lo, c.hi);
  RETURN v_page;
END $f$;

CREATE FUNCTION posthaste.expire_@k@(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_rows bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id)
       AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted), false)
     LIMIT p_limit),
  early AS (INSERT INTO posthaste.early_@k@ (xid, id) SELECT xid, id FROM gone),
  freed AS (DELETE FROM posthaste.unique_key u USING gone g WHERE u.key = g.unique_key AND u.id = g.id)
  INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
  SELECT id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, 'expired', queue, name, tag, unique_key, last_error, kwargs
    FROM gone ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- Truncates a finished parked generation: nobody can enter it (the caller holds its lock), and no row of it waits for its promotion.
CREATE FUNCTION posthaste.truncate_@k@() RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
              WHERE NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted), false)) THEN
    RETURN false;
  END IF;
  BEGIN
    LOCK TABLE posthaste.parked_@k@, posthaste.pass_@k@, posthaste.early_@k@ IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN false;
  END;
  TRUNCATE posthaste.parked_@k@, posthaste.pass_@k@, posthaste.early_@k@;
  RETURN true;
END $f$;

-- Whether the slot is really empty: a truncation whose transaction was lost after its setval leaves rows and passes behind.
CREATE FUNCTION posthaste.is_empty_@k@() RETURNS boolean LANGUAGE sql AS $f$
  SELECT NOT EXISTS (SELECT FROM posthaste.parked_@k@) AND NOT EXISTS (SELECT FROM posthaste.pass_@k@) AND NOT EXISTS (SELECT FROM posthaste.early_@k@)
$f$;

-- Rows of this slot: counted while it is small, else estimated from pages all over it.
CREATE FUNCTION posthaste.parked_rows_@k@() RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_percent real := least(100, 6400.0 * current_setting('block_size')::bigint / greatest(1, pg_relation_size('posthaste.parked_@k@')));
BEGIN
  RETURN (SELECT count(*) FROM posthaste.parked_@k@ TABLESAMPLE SYSTEM (v_percent)) * 100 / v_percent;
END $f$
$sql$, '@move@', $move$live AS (
      INSERT INTO posthaste.store (slot, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, queue, name, tag, unique_key, last_error, kwargs)
      SELECT CASE WHEN scheduled_at > v_now AND scheduled_at > (SELECT posthaste.parked_until()) THEN (SELECT posthaste.enter_parked()) ELSE (SELECT posthaste.enter_ready()) END,
             id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, queue, name, tag, unique_key, last_error, kwargs
        FROM due WHERE expires_at > v_now AND NOT early),
    freed AS (DELETE FROM posthaste.unique_key u USING due d WHERE d.expires_at <= v_now AND NOT d.early AND u.key = d.unique_key AND u.id = d.id),
    gone AS (
      INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
      SELECT id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, 'expired', queue, name, tag, unique_key, last_error, kwargs
        FROM due WHERE expires_at <= v_now AND NOT early ON CONFLICT (id) DO NOTHING)$move$), '@k@', k::text);
  END LOOP;
END $do$;

-- Starts a new generation when the current one has grown beyond p_bytes. Returns 'rotated', 'full' (the ring has no free slot: something pins
-- the oldest generation) or 'small'.
CREATE FUNCTION posthaste.rotate(p_bytes bigint) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_current bigint;
  v_slot text;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 'busy';
  END IF;
  v_current := pg_sequence_last_value('posthaste.ready_current'::regclass);
  v_slot := (v_current % 4)::text;
  IF pg_table_size(('posthaste.ready_' || v_slot)::regclass) + pg_table_size(('posthaste.claim_' || v_slot)::regclass)
     + pg_table_size(('posthaste.ack_' || v_slot)::regclass) <= p_bytes THEN
    RETURN 'small';
  END IF;
  IF v_current + 1 - pg_sequence_last_value('posthaste.ready_low'::regclass) >= 4 THEN
    RETURN 'full';
  END IF;
  PERFORM setval('posthaste.ready_current', v_current + 1);
  RETURN 'rotated';
END $f$;

-- The first lane of a slot with unclaimed jobs.
CREATE FUNCTION posthaste.pending_lane(p_slot integer, OUT o_queue text, OUT o_priority integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $f$
BEGIN
  CASE p_slot
    WHEN 0 THEN SELECT * INTO o_queue, o_priority FROM posthaste.pending_lane_0();
    WHEN 1 THEN SELECT * INTO o_queue, o_priority FROM posthaste.pending_lane_1();
    WHEN 2 THEN SELECT * INTO o_queue, o_priority FROM posthaste.pending_lane_2();
    WHEN 3 THEN SELECT * INTO o_queue, o_priority FROM posthaste.pending_lane_3();
    WHEN 4 THEN SELECT * INTO o_queue, o_priority FROM posthaste.pending_lane_4();
    WHEN 5 THEN SELECT * INTO o_queue, o_priority FROM posthaste.pending_lane_5();
  END CASE;
END $f$;

-- Seals the oldest generation that claims still look at, once every job in it was claimed. The exclusive locks (one for those who
-- came by the view, one for posthaste.enqueue()) prove that no enqueuer is in it; whoever comes later finds ready_scan moved and takes a newer one.
CREATE FUNCTION posthaste.seal() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_scan bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN false;
  END IF;
  v_scan := pg_sequence_last_value('posthaste.ready_scan'::regclass);
  IF v_scan >= pg_sequence_last_value('posthaste.ready_current'::regclass) OR NOT pg_try_advisory_xact_lock(1885893473, v_scan::integer)
     OR NOT (CASE v_scan % 4 WHEN 0 THEN posthaste.lock_0() WHEN 1 THEN posthaste.lock_1() WHEN 2 THEN posthaste.lock_2() ELSE posthaste.lock_3() END) THEN
    RETURN false;
  END IF;
  IF (SELECT l.o_queue FROM posthaste.pending_lane((v_scan % 4)::integer) l) IS NOT NULL THEN
    RETURN false;
  END IF;
  PERFORM setval('posthaste.ready_scan', v_scan + 1);
  RETURN true;
END $f$;

-- Moves up to p_limit unclaimed jobs of a slot aside, in their order. Called when they pin the full ring, and to compact an aside slot.
CREATE FUNCTION posthaste.move_aside(p_slot integer, p_limit integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_current bigint;
  v_to smallint;
  v_queue text;
  v_priority integer;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  v_current := pg_sequence_last_value('posthaste.aside_current'::regclass);
  v_to := 4 + v_current % 2;
  IF p_slot = v_to THEN
    RETURN 0;
  END IF;
  SELECT * INTO v_queue, v_priority FROM posthaste.pending_lane(p_slot);
  IF v_queue IS NULL THEN
    RETURN 0;
  END IF;
  -- Claims look aside from now on; an empty slot does not disturb them.
  IF pg_sequence_last_value('posthaste.aside_scan'::regclass) > v_current THEN
    PERFORM setval('posthaste.aside_scan', v_current);
  END IF;
  RETURN CASE p_slot
    WHEN 0 THEN posthaste.move_0(v_queue, v_priority, v_to, p_limit)
    WHEN 1 THEN posthaste.move_1(v_queue, v_priority, v_to, p_limit)
    WHEN 2 THEN posthaste.move_2(v_queue, v_priority, v_to, p_limit)
    WHEN 3 THEN posthaste.move_3(v_queue, v_priority, v_to, p_limit)
    WHEN 4 THEN posthaste.move_4(v_queue, v_priority, v_to, p_limit)
    WHEN 5 THEN posthaste.move_5(v_queue, v_priority, v_to, p_limit)
  END;
END $f$;

-- Where the ring stands.
CREATE FUNCTION posthaste.ring(OUT ready_low bigint, OUT ready_scan bigint, OUT ready_current bigint, OUT aside_low bigint, OUT aside_scan bigint,
                               OUT aside_current bigint, OUT parked_low bigint, OUT parked_current bigint) LANGUAGE sql STABLE AS $f$
  SELECT pg_sequence_last_value('posthaste.ready_low'::regclass), pg_sequence_last_value('posthaste.ready_scan'::regclass), pg_sequence_last_value('posthaste.ready_current'::regclass),
         pg_sequence_last_value('posthaste.aside_low'::regclass), pg_sequence_last_value('posthaste.aside_scan'::regclass), pg_sequence_last_value('posthaste.aside_current'::regclass),
         pg_sequence_last_value('posthaste.parked_low'::regclass), pg_sequence_last_value('posthaste.parked_current'::regclass)
$f$;

-- Verifies a slot from p_batch on, at most p_batches of it.
CREATE FUNCTION posthaste.verify(p_slot integer, p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $f$
BEGIN
  CASE p_slot
    WHEN 0 THEN SELECT * INTO o_batch, o_done FROM posthaste.verify_0(p_batch, p_batches);
    WHEN 1 THEN SELECT * INTO o_batch, o_done FROM posthaste.verify_1(p_batch, p_batches);
    WHEN 2 THEN SELECT * INTO o_batch, o_done FROM posthaste.verify_2(p_batch, p_batches);
    WHEN 3 THEN SELECT * INTO o_batch, o_done FROM posthaste.verify_3(p_batch, p_batches);
    WHEN 4 THEN SELECT * INTO o_batch, o_done FROM posthaste.verify_4(p_batch, p_batches);
    WHEN 5 THEN SELECT * INTO o_batch, o_done FROM posthaste.verify_5(p_batch, p_batches);
  END CASE;
END $f$;

-- Reclaims the oldest generation of the ring if it is sealed and every row of it is closed. p_batch: how far earlier calls have verified it.
-- o_state: 'open' (o_batch says up to which batch all is closed), 'blocked' (o_blocker holds a lock), 'truncated', 'none'.
CREATE FUNCTION posthaste.reclaim(p_low bigint, p_batch bigint, p_batches integer, OUT o_state text, OUT o_batch bigint, OUT o_blocker integer) LANGUAGE plpgsql AS $f$
DECLARE
  v_done boolean;
BEGIN
  o_state := 'none'; o_batch := 0;
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1)
     OR p_low <> pg_sequence_last_value('posthaste.ready_low'::regclass) OR p_low >= pg_sequence_last_value('posthaste.ready_scan'::regclass) THEN
    RETURN;
  END IF;
  SELECT v.o_batch, v.o_done INTO o_batch, v_done FROM posthaste.verify((p_low % 4)::integer, p_batch, p_batches) v;
  IF NOT v_done THEN
    o_state := 'open';
    RETURN;
  END IF;
  o_blocker := CASE p_low % 4 WHEN 0 THEN posthaste.truncate_0() WHEN 1 THEN posthaste.truncate_1() WHEN 2 THEN posthaste.truncate_2() WHEN 3 THEN posthaste.truncate_3() END;
  IF o_blocker IS NOT NULL THEN
    o_state := 'blocked';
    RETURN;
  END IF;
  -- A crash between this and the commit leaves spent rows behind, with the claims and acknowledgements that say so.
  PERFORM setval('posthaste.ready_low', p_low + 1);
  o_state := 'truncated';
END $f$;

-- Holds jobs that still run in the oldest generation, so that it can be truncated.
CREATE FUNCTION posthaste.hold(p_slot integer, p_batch bigint, p_limit integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $f$
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  RETURN CASE p_slot
    WHEN 0 THEN posthaste.hold_0(p_batch, p_limit)
    WHEN 1 THEN posthaste.hold_1(p_batch, p_limit)
    WHEN 2 THEN posthaste.hold_2(p_batch, p_limit)
    WHEN 3 THEN posthaste.hold_3(p_batch, p_limit)
    WHEN 4 THEN posthaste.hold_4(p_batch, p_limit)
    WHEN 5 THEN posthaste.hold_5(p_batch, p_limit)
  END;
END $f$;

-- One step of keeping the aside slots small: reclaims what is spent, and starts a compaction when at least p_spent rows and half of a slot are.
-- Returns what it did: 'moved', 'compacting', 'truncated' or 'none'. A compaction is paid for by the jobs that passed since the last one.
CREATE FUNCTION posthaste.tidy_aside(p_spent bigint, p_limit integer) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  r record;
  v_slot integer;
  v_done boolean;
  v_spent bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 'busy';
  END IF;
  SELECT * INTO r FROM posthaste.ring();
  v_slot := 4 + r.aside_low % 2;
  IF r.aside_low < r.aside_current THEN
    IF posthaste.move_aside(v_slot, p_limit) > 0 THEN
      RETURN 'moved';
    END IF;
    IF r.aside_scan = r.aside_low THEN
      PERFORM setval('posthaste.aside_scan', r.aside_current);
    END IF;
  END IF;
  -- A lane that is pending keeps the slot; so does a job that is still being worked, until it is held.
  IF pg_relation_size((CASE v_slot WHEN 4 THEN 'posthaste.ready_4'::regclass ELSE 'posthaste.ready_5'::regclass END)) = 0 THEN
    IF r.aside_low < r.aside_current THEN
      PERFORM setval('posthaste.aside_low', r.aside_low + 1);
    END IF;
    RETURN 'none';
  END IF;
  IF (SELECT l.o_queue FROM posthaste.pending_lane(v_slot) l) IS NULL THEN
    SELECT v.o_done INTO v_done FROM posthaste.verify(v_slot, 0, 1000000) v;
    IF NOT v_done THEN
      PERFORM posthaste.hold(v_slot, 0, p_limit);
      RETURN 'none';
    END IF;
    IF (CASE v_slot WHEN 4 THEN posthaste.truncate_4() ELSE posthaste.truncate_5() END) IS NOT NULL THEN
      RETURN 'none';
    END IF;
    IF r.aside_low < r.aside_current THEN
      PERFORM setval('posthaste.aside_low', r.aside_low + 1);
    ELSE
      PERFORM setval('posthaste.aside_scan', r.aside_current + 1);
    END IF;
    RETURN 'truncated';
  END IF;
  IF r.aside_low = r.aside_current THEN
    v_spent := CASE v_slot WHEN 4 THEN (SELECT coalesce(sum(n), 0) FROM posthaste.claim_4) ELSE (SELECT coalesce(sum(n), 0) FROM posthaste.claim_5) END;
    IF v_spent >= p_spent AND v_spent * 2 >= (CASE v_slot WHEN 4 THEN posthaste.aside_rows_4() ELSE posthaste.aside_rows_5() END) THEN
      PERFORM setval('posthaste.aside_current', r.aside_current + 1);
      RETURN 'compacting';
    END IF;
  END IF;
  RETURN 'none';
END $f$;

-- Rows of an aside slot: counted while it is small, else estimated from pages all over it.
CREATE FUNCTION posthaste.aside_rows_4() RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_percent real := least(100, 6400.0 * current_setting('block_size')::bigint / greatest(1, pg_relation_size('posthaste.ready_4')));
BEGIN
  RETURN (SELECT count(*) FROM posthaste.ready_4 TABLESAMPLE SYSTEM (v_percent)) * 100 / v_percent;
END $f$;
CREATE FUNCTION posthaste.aside_rows_5() RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_percent real := least(100, 6400.0 * current_setting('block_size')::bigint / greatest(1, pg_relation_size('posthaste.ready_5')));
BEGIN
  RETURN (SELECT count(*) FROM posthaste.ready_5 TABLESAMPLE SYSTEM (v_percent)) * 100 / v_percent;
END $f$;

-- First half of a step of the scheduled road: when a parked job is due, tells enqueuers how far the promoter is going to look. A transaction of its own,
-- because setval takes an xid before it writes: the promoter may rely only on what was told before it had one.
CREATE FUNCTION posthaste.tell_due() RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN false;
  END IF;
  v_until := to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
  IF v_until >= v_now THEN
    RETURN false;
  END IF;
  -- A look that is slow walks rows of an open or rolled-back transaction: moving on spares the next one the walk.
  IF (CASE pg_sequence_last_value('posthaste.parked_current'::regclass) % 2
        WHEN 0 THEN EXISTS (SELECT FROM posthaste.parked_6 r WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now)
        ELSE EXISTS (SELECT FROM posthaste.parked_7 r WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now) END)
     OR clock_timestamp() - v_now > interval '2 ms' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM setval('posthaste.parked_until', floor(extract(epoch FROM v_now) * 1000000)::bigint);
    RETURN true;
  END IF;
  RETURN false;
END $f$;

-- Second half: promotes what is due, at most p_limit jobs, from the current parked slot, or carries on with what is left in the old one. One generation
-- in a transaction: a pass must not meet rows that its own transaction has just carried over.
CREATE FUNCTION posthaste.promote(p_limit integer, p_old boolean) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
  v_generation bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: promote needs a READ COMMITTED transaction of its own' USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  v_low := pg_sequence_last_value('posthaste.parked_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.parked_current'::regclass);
  v_generation := CASE WHEN p_old THEN v_low ELSE v_current END;
  IF p_old AND v_low = v_current THEN
    RETURN 0;
  END IF;
  RETURN CASE v_generation % 2 WHEN 0 THEN posthaste.promote_6(p_limit, p_old) ELSE posthaste.promote_7(p_limit, p_old) END;
END $f$;

-- Keeps the parked slots small. When at least p_spent rows of the current one, and as many as wait in it, are promoted, a new generation
-- starts and the promoter carries what waits over; an old generation that holds nothing any more is truncated.
CREATE FUNCTION posthaste.tidy_parked(p_spent bigint) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
  v_promoted bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 'busy';
  END IF;
  v_low := pg_sequence_last_value('posthaste.parked_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.parked_current'::regclass);
  IF v_low < v_current THEN
    IF pg_try_advisory_xact_lock(1885893474, v_low::integer)
       AND (CASE v_low % 2 WHEN 0 THEN posthaste.truncate_6() ELSE posthaste.truncate_7() END) THEN
      PERFORM setval('posthaste.parked_low', v_low + 1);
      RETURN 'truncated';
    END IF;
    RETURN 'draining';
  END IF;
  v_promoted := coalesce(CASE v_current % 2 WHEN 0 THEN (SELECT p.promoted FROM posthaste.pass_6 p ORDER BY page DESC LIMIT 1)
                                            ELSE (SELECT p.promoted FROM posthaste.pass_7 p ORDER BY page DESC LIMIT 1) END, 0);
  IF v_promoted < p_spent OR v_promoted * 2 < (CASE v_current % 2 WHEN 0 THEN posthaste.parked_rows_6() ELSE posthaste.parked_rows_7() END) THEN
    RETURN 'none';
  END IF;
  IF NOT (CASE v_current % 2 WHEN 0 THEN posthaste.is_empty_7() ELSE posthaste.is_empty_6() END) THEN
    RETURN CASE WHEN (CASE v_current % 2 WHEN 0 THEN posthaste.truncate_7() ELSE posthaste.truncate_6() END) THEN 'truncated' ELSE 'draining' END;
  END IF;
  PERFORM setval('posthaste.parked_current', v_current + 1);
  RETURN 'rotated';
END $f$;

-- Takes the jobs of a dead worker away from it. The caller has watched its heart not beat for long enough, by its own clock; here it is only
-- made sure that it has not beaten since. Idempotent: called again for a while, because a claim of the dead may still commit.
CREATE FUNCTION posthaste.rescue(p_worker bigint, p_beat bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_bitmapscan = off SET jit = off AS $f$
DECLARE
  v_open record;
  v_rows bigint;
  v_id bigint;
  v_jobs bigint := 0;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 3) THEN
    RETURN 0;
  END IF;
  PERFORM set_config('lock_timeout', '50ms', true);
  UPDATE posthaste.worker SET stopped_at = coalesce(stopped_at, clock_timestamp()) WHERE id = p_worker AND beat = p_beat;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  FOR v_open IN
    SELECT 0 AS slot, o.* FROM posthaste.open_of_0(p_worker, NULL) o UNION ALL SELECT 1, o.* FROM posthaste.open_of_1(p_worker, NULL) o UNION ALL
    SELECT 2, o.* FROM posthaste.open_of_2(p_worker, NULL) o UNION ALL SELECT 3, o.* FROM posthaste.open_of_3(p_worker, NULL) o UNION ALL
    SELECT 4, o.* FROM posthaste.open_of_4(p_worker, NULL) o UNION ALL SELECT 5, o.* FROM posthaste.open_of_5(p_worker, NULL) o
  LOOP
    v_rows := posthaste.suspect(v_open.slot, v_open.batch, v_open.token, v_open.ids);
    IF v_rows IS NULL THEN  -- one of them is being closed in somebody's open transaction: go job by job and leave that one for later
      v_rows := 0;
      FOREACH v_id IN ARRAY v_open.ids LOOP
        v_rows := v_rows + coalesce(posthaste.suspect(v_open.slot, v_open.batch, v_open.token, ARRAY[v_id]), 0);
      END LOOP;
    END IF;
    v_jobs := v_jobs + v_rows;
  END LOOP;
  RETURN v_jobs + posthaste.suspect_held(p_worker);
END $f$;

CREATE FUNCTION posthaste.suspect(p_slot integer, p_batch bigint, p_token uuid, p_ids bigint[]) RETURNS bigint LANGUAGE sql AS $f$
  SELECT CASE p_slot
    WHEN 0 THEN posthaste.suspect_0(p_batch, p_token, p_ids) WHEN 1 THEN posthaste.suspect_1(p_batch, p_token, p_ids)
    WHEN 2 THEN posthaste.suspect_2(p_batch, p_token, p_ids) WHEN 3 THEN posthaste.suspect_3(p_batch, p_token, p_ids)
    WHEN 4 THEN posthaste.suspect_4(p_batch, p_token, p_ids) WHEN 5 THEN posthaste.suspect_5(p_batch, p_token, p_ids) END
$f$;

-- Held jobs of a dead worker. Whoever was a suspect already ran alone and killed again: that burns an attempt, moves the next one back, and
-- ends the job when none is left.
CREATE FUNCTION posthaste.suspect_held(p_worker bigint) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  h posthaste.held;
  v_jobs bigint := 0;
BEGIN
  FOR h IN SELECT * FROM posthaste.held WHERE worker = p_worker AND state = 'running' FOR UPDATE SKIP LOCKED LOOP
    IF h.crashes > 0 AND h.attempt + 1 >= h.max_attempts THEN
      DELETE FROM posthaste.held WHERE id = h.id;
      DELETE FROM posthaste.unique_key WHERE key = h.unique_key AND id = h.id;
      INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
      VALUES (h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt + 1, h.max_attempts, h.kwargs_bytes, h.crashes + 1, 'dead', h.queue, h.name, h.tag, h.unique_key,
              'its worker died ' || h.crashes + 1 || ' times while it had this job', h.kwargs) ON CONFLICT (id) DO NOTHING;
    ELSE
      UPDATE posthaste.held SET state = 'suspect', worker = NULL, token = NULL, crashes = least(h.crashes + 1, 32000),
             attempt = h.attempt + CASE WHEN h.crashes > 0 THEN 1 ELSE 0 END,
             until = clock_timestamp() + CASE WHEN h.crashes > 0 THEN least(interval '1 s' * power(2, least(h.crashes, 10)), interval '5 min') ELSE interval '0' END,
             last_error = 'its worker died while it had this job'
       WHERE id = h.id;
    END IF;
    v_jobs := v_jobs + 1;
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Hands out one suspect of a queue, to be run while nothing else runs in the worker's process.
CREATE FUNCTION posthaste.claim_suspect(p_queue text, p_worker bigint, p_token uuid) RETURNS SETOF posthaste.claimed LANGUAGE sql AS $f$
  UPDATE posthaste.held h SET state = 'running', worker = p_worker, token = p_token
   WHERE h.id = (SELECT s.id FROM posthaste.held s WHERE s.state = 'suspect' AND s.queue = p_queue AND s.until <= clock_timestamp() AND s.expires_at > clock_timestamp()
                  ORDER BY s.until, s.id LIMIT 1 FOR UPDATE SKIP LOCKED)
     AND EXISTS (SELECT FROM posthaste.worker w WHERE w.id = p_worker AND w.stopped_at IS NULL)
  RETURNING (-1)::smallint, 0::bigint, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt, h.max_attempts, h.crashes, h.name, h.tag, h.unique_key, h.kwargs
$f$;

-- Queues that have suspects to be run.
CREATE FUNCTION posthaste.suspect_queues() RETURNS SETOF text LANGUAGE sql STABLE AS $f$
  SELECT DISTINCT queue FROM posthaste.held WHERE state = 'suspect' AND until <= clock_timestamp() AND expires_at > clock_timestamp()
$f$;

-- Ends awaited jobs that are to be judged by p_until and whose confirmation is here: it was given by a transaction that could not see the job being held.
CREATE FUNCTION posthaste.confirm_held(p_until timestamptz, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_jobs bigint;
BEGIN
  WITH met AS (
    SELECT h.id FROM posthaste.held h WHERE h.state = 'awaiting' AND h.until <= p_until AND EXISTS (SELECT FROM posthaste.confirmed c WHERE c.id = h.id)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  ended AS (DELETE FROM posthaste.held h USING met WHERE h.id = met.id RETURNING h.id, h.unique_key),
  used AS (DELETE FROM posthaste.confirmed c USING met WHERE c.id = met.id),
  freed AS (DELETE FROM posthaste.unique_key u USING ended e WHERE u.key = e.unique_key AND u.id = e.id)
  SELECT count(*) INTO v_jobs FROM ended;
  RETURN v_jobs;
END $f$;

-- Awaited jobs that were not confirmed in time are tried again, which burns an attempt; held jobs that expired are kept as expired.
CREATE FUNCTION posthaste.overdue(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_jobs posthaste.store[];
  v_ids bigint[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.confirm_held(clock_timestamp(), p_limit);
  WITH late AS (
    SELECT h.id FROM posthaste.held h
     WHERE (h.state = 'awaiting' AND h.until <= clock_timestamp()) OR (h.state IN ('awaiting', 'suspect') AND h.expires_at <= clock_timestamp())
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  freed AS (
    DELETE FROM posthaste.held h USING late WHERE h.id = late.id
    RETURNING NULL::xid8 AS xid, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt, h.max_attempts, h.kwargs_bytes, (-1)::smallint AS slot, h.crashes,
              h.queue, h.name, h.tag, h.unique_key, h.last_error, h.kwargs)
  SELECT array_agg(ROW(freed.*)::posthaste.store), array_agg(freed.id) INTO v_jobs, v_ids FROM freed;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.dispose(v_jobs, v_ids,
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() OR j.attempt + 1 >= j.max_attempts THEN 2 ELSE 1 END::smallint FROM unnest(v_jobs) j),
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() THEN j.attempt ELSE j.attempt + 1 END FROM unnest(v_jobs) j),
    ARRAY(SELECT interval '0' FROM unnest(v_jobs) j), NULL,
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() THEN 'expired' ELSE 'dead' END FROM unnest(v_jobs) j),
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() THEN NULL ELSE 'it was not confirmed in time' END FROM unnest(v_jobs) j));
  RETURN cardinality(v_ids);
END $f$;

-- Finds expired jobs wherever they wait, without any consumer.
CREATE FUNCTION posthaste.expire(p_limit integer) RETURNS bigint LANGUAGE plpgsql SET jit = off AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.confirm_held('infinity', p_limit);
  RETURN posthaste.expire_0(p_limit) + posthaste.expire_1(p_limit) + posthaste.expire_2(p_limit) + posthaste.expire_3(p_limit)
       + posthaste.expire_4(p_limit) + posthaste.expire_5(p_limit) + posthaste.expire_6(p_limit) + posthaste.expire_7(p_limit);
END $f$;

-- Forgets confirmations that nobody asked for and workers that are long gone.
CREATE FUNCTION posthaste.prune() RETURNS void LANGUAGE sql AS $f$
  DELETE FROM posthaste.confirmed c WHERE c.confirmed_at < clock_timestamp() - interval '1 day' AND NOT EXISTS (SELECT FROM posthaste.held h WHERE h.id = c.id);
  DELETE FROM posthaste.worker w WHERE w.stopped_at < clock_timestamp() - interval '1 day' AND NOT EXISTS (SELECT FROM posthaste.held h WHERE h.worker = w.id)
$f$;
