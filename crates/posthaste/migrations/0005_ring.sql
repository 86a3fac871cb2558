-- Maintenance: the ring. Each duty is one short transaction behind an advisory lock of its own, so that a second leader finds it taken and
-- goes on. Nothing here waits for a user's transaction: locks are tried, not awaited, and rows are skipped.
--
-- Duty locks (1885893476, n): 1 the ring (rotate, seal, aside, reclaim)   2 the parked slots   3 rescue   4 expiry   5 history

-- Who has had a lock on one of these tables, or this advisory lock, in a transaction that is older than a second: a session by its pid, a
-- prepared transaction by its gid. NULL when there is nobody, or somebody in passing.
CREATE FUNCTION posthaste.lock_holder(p_tables regclass[], p_class bigint DEFAULT NULL, p_number bigint DEFAULT NULL)
RETURNS text LANGUAGE sql STABLE AS $f$
  SELECT coalesce('session ' || l.pid, 'the prepared transaction ' || x.gid, 'a prepared transaction')
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
         LEFT JOIN pg_locks t ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid' AND t.virtualtransaction = l.virtualtransaction
         LEFT JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
   WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.pid IS DISTINCT FROM pg_backend_pid()
     AND (l.relation = ANY (p_tables) OR l.locktype = 'advisory' AND l.classid::bigint = p_class AND l.objid::bigint = p_number)
     AND coalesce(a.xact_start, x.prepared, '-infinity') < clock_timestamp() - interval '1 s' LIMIT 1
$f$;

CALL posthaste.each_slot(0, 5, $sql$

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

-- The first lane of this slot that has jobs that were not claimed yet; the internal ones of queue '' are lanes as well. One index probe leads from
-- lane to lane.
CREATE FUNCTION posthaste.pending_lane_@k@(OUT o_queue text, OUT o_priority integer) LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_@k@ r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_@k@(o_queue, o_priority);
  END LOOP;
END $f$;

-- Takes up to p_limit unclaimed jobs of a lane out of this slot, in the lane's order, by claiming them as nobody: the caller's transaction puts
-- them elsewhere. What of them had expired is kept as expired and not returned.
CREATE FUNCTION posthaste.take_@k@(p_queue text, p_priority integer, p_limit integer) RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.sees_@k@(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch FROM posthaste.claim_@k@(p_queue, p_priority, 0, v_token, p_limit, 67108864, false, posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_@k@(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.ack_@k@ k WHERE k.xid = r.xid AND k.id = r.id);
    INSERT INTO posthaste.whole_@k@ (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;

-- Compares rows, never counts: looks at batches after p_batch, at most p_batches of them, and stops at the first that has a job which
-- nobody has closed. In a sealed slot every job belongs to a batch. o_batch is where to go on next time (everything up to it is closed for
-- good), o_done that the end was reached.
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
      INSERT INTO posthaste.held
      SELECT h.* FROM posthaste.close_@k@(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_hold(j, 'running', worker => v_open.worker, token => v_open.token) h;
      IF FOUND THEN
        v_held := v_held + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_held;
END $f$;

-- Empties the slot, or says who holds it; '' for somebody in passing. Whoever can be named is met without a look at the tables.
CREATE FUNCTION posthaste.truncate_@k@() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_@k@', 'posthaste.claim_@k@', 'posthaste.ack_@k@', 'posthaste.early_@k@', 'posthaste.whole_@k@',
                               'posthaste.split_@k@', 'posthaste.counted_@k@', 'posthaste.opened_@k@', 'posthaste.left_@k@'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_@k@, posthaste.claim_@k@, posthaste.ack_@k@, posthaste.early_@k@, posthaste.whole_@k@, posthaste.split_@k@,
      posthaste.counted_@k@, posthaste.opened_@k@, posthaste.left_@k@ IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  TRUNCATE posthaste.ready_@k@, posthaste.claim_@k@, posthaste.ack_@k@, posthaste.early_@k@, posthaste.whole_@k@, posthaste.split_@k@,
    posthaste.counted_@k@, posthaste.opened_@k@, posthaste.left_@k@;
  RETURN NULL;
END $f$
$sql$);

-- Starts a new generation when the current one has grown beyond p_bytes. Returns 'rotated', 'full' (the ring has no free slot: something
-- pins the oldest generation) or 'small'.
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
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.pending_lane(p_slot integer, OUT o_queue text, OUT o_priority integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_@k@() l;
  END CASE;
END $f$
$sql$);

-- Seals the oldest generation that claims still look at, once every job in it was claimed. The exclusive lock proves that no
-- enqueuer is in it; whoever comes later finds ready_scan moved and takes a newer one. o_blocker: the transaction with jobs in it that has kept
-- it open for more than a second.
CREATE FUNCTION posthaste.seal(OUT o_sealed boolean, OUT o_blocker text) LANGUAGE plpgsql AS $f$
DECLARE
  v_scan bigint;
BEGIN
  o_sealed := false;
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN;
  END IF;
  v_scan := pg_sequence_last_value('posthaste.ready_scan'::regclass);
  IF v_scan >= pg_sequence_last_value('posthaste.ready_current'::regclass) THEN
    RETURN;
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893473, v_scan::integer) THEN
    o_blocker := posthaste.lock_holder('{}', 1885893473, v_scan);
    RETURN;
  END IF;
  IF (SELECT l.o_queue FROM posthaste.pending_lane((v_scan % 4)::integer) l) IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM setval('posthaste.ready_scan', v_scan + 1);
  o_sealed := true;
END $f$;

-- Where the ring stands.
CREATE FUNCTION posthaste.ring(OUT ready_low bigint, OUT ready_scan bigint, OUT ready_current bigint, OUT aside_low bigint,
                               OUT aside_scan bigint, OUT aside_current bigint, OUT parked_low bigint, OUT parked_current bigint)
LANGUAGE sql STABLE AS $f$
  SELECT pg_sequence_last_value('posthaste.ready_low'::regclass), pg_sequence_last_value('posthaste.ready_scan'::regclass),
         pg_sequence_last_value('posthaste.ready_current'::regclass), pg_sequence_last_value('posthaste.aside_low'::regclass),
         pg_sequence_last_value('posthaste.aside_scan'::regclass), pg_sequence_last_value('posthaste.aside_current'::regclass),
         pg_sequence_last_value('posthaste.parked_low'::regclass), pg_sequence_last_value('posthaste.parked_current'::regclass)
$f$;

-- Verifies a slot from p_batch on, at most p_batches of it.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.verify(p_slot integer, p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN SELECT v.* INTO o_batch, o_done FROM posthaste.verify_@k@(p_batch, p_batches) v;
  END CASE;
END $f$
$sql$);

-- Empties a slot, or says who holds it.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.truncate(p_slot integer) RETURNS text LANGUAGE plpgsql AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN RETURN posthaste.truncate_@k@();
  END CASE;
END $f$
$sql$);

-- Reclaims the oldest generation of the ring if it is sealed and every row of it is closed. p_batch: how far earlier calls have verified
-- it. o_state: 'open' (o_batch says up to which batch all is closed), 'blocked' (o_blocker holds a lock), 'truncated', 'none'.
CREATE FUNCTION posthaste.reclaim(p_low bigint, p_batch bigint, p_batches integer, OUT o_state text, OUT o_batch bigint, OUT o_blocker text)
LANGUAGE plpgsql AS $f$
DECLARE
  v_slot integer := p_low % 4;
  v_done boolean;
BEGIN
  o_state := 'none'; o_batch := 0;
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1)
     OR p_low <> pg_sequence_last_value('posthaste.ready_low'::regclass) OR p_low >= pg_sequence_last_value('posthaste.ready_scan'::regclass) THEN
    RETURN;
  END IF;
  SELECT v.o_batch, v.o_done INTO o_batch, v_done FROM posthaste.verify(v_slot, p_batch, p_batches) v;
  IF NOT v_done THEN
    o_state := 'open';
    RETURN;
  END IF;
  o_blocker := posthaste.truncate(v_slot);
  IF o_blocker IS NOT NULL THEN
    o_state := 'blocked';
    RETURN;
  END IF;
  -- A crash between this and the commit leaves spent rows behind, with the claims and acknowledgements that say so.
  PERFORM setval('posthaste.ready_low', p_low + 1);
  o_state := 'truncated';
END $f$;

-- Holds jobs that still run in the oldest generation, so that it can be truncated.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.hold(p_slot integer, p_batch bigint, p_limit integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $f$
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  CASE p_slot
    WHEN @k@ THEN RETURN posthaste.hold_@k@(p_batch, p_limit);
  END CASE;
END $f$
$sql$);
