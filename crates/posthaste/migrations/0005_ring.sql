-- Maintenance: the ring. Each duty is one short transaction behind an advisory lock of its own, so that a second leader finds it taken and
-- goes on. Nothing here waits for a user's transaction: locks are tried, not awaited, and rows are skipped.
--
-- Duty locks (1885893476, n): 1 the ring (rotate, seal, aside, reclaim)   2 the parked slots   3 rescue   4 expiry

DO $do$
BEGIN
  FOR k IN 0..5 LOOP
    EXECUTE replace($sql$

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
END $f$
$sql$, '@k@', k::text);
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

-- Seals the oldest generation that claims still look at, once every job in it was claimed. The exclusive lock proves that no
-- enqueuer is in it; whoever comes later finds ready_scan moved and takes a newer one.
CREATE FUNCTION posthaste.seal() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_scan bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN false;
  END IF;
  v_scan := pg_sequence_last_value('posthaste.ready_scan'::regclass);
  IF v_scan >= pg_sequence_last_value('posthaste.ready_current'::regclass) OR NOT pg_try_advisory_xact_lock(1885893473, v_scan::integer) THEN
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
