-- Maintenance: aside. Jobs that nobody claims would pin the ring; they are moved to a slot of their own, which is kept small in its turn.

-- Takes unclaimed jobs of a lane out of a slot.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.take(p_slot integer, p_queue text, p_priority integer, p_limit integer) RETURNS SETOF posthaste.store LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN RETURN QUERY SELECT * FROM posthaste.take_@k@(p_queue, p_priority, p_limit);
  END CASE;
END $f$
$sql$);

-- Moves up to p_limit unclaimed jobs of a slot aside, in their order. Called when they pin the full ring, and to compact an aside slot.
-- What of them had expired is kept as expired and not counted: 0 does not mean that nothing was there.
CREATE FUNCTION posthaste.move_aside(p_slot integer, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_current bigint;
  v_to smallint;
  v_queue text;
  v_priority integer;
  v_rows bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  v_current := pg_sequence_last_value('posthaste.aside_current'::regclass);
  v_to := 4 + v_current % 2;
  IF p_slot = v_to THEN
    RETURN 0;
  END IF;
  SELECT l.* INTO v_queue, v_priority FROM posthaste.pending_lane(p_slot) l;
  IF v_queue IS NULL THEN
    RETURN 0;
  END IF;
  -- Claims look aside from now on; an empty slot does not disturb them.
  IF pg_sequence_last_value('posthaste.aside_scan'::regclass) > v_current THEN
    PERFORM setval('posthaste.aside_scan', v_current);
  END IF;
  INSERT INTO posthaste.store SELECT a.* FROM posthaste.take(p_slot, v_queue, v_priority, p_limit) r, posthaste.again(r, v_to) a;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- Rows of a slot: counted while it is small, else estimated from pages all over it. A plan for this slot alone, so that no other one is
-- locked.
CREATE FUNCTION posthaste.rows_in(p_slot integer) RETURNS bigint LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $f$
DECLARE
  v_table regclass := 'posthaste.' || CASE WHEN p_slot < 6 THEN 'ready_' ELSE 'parked_' END || p_slot;
  v_percent real := least(100, 6400.0 * current_setting('block_size')::bigint / greatest(1, pg_relation_size(v_table)));
BEGIN
  RETURN (SELECT count(*) FROM posthaste.store TABLESAMPLE SYSTEM (v_percent) WHERE slot = p_slot::smallint) * 100 / v_percent;
END $f$;

-- Rows of an aside slot that belong to a batch.
CALL posthaste.by_slot(4, 5, $sql$
CREATE FUNCTION posthaste.spent_in(p_slot integer) RETURNS bigint LANGUAGE plpgsql AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN RETURN (SELECT coalesce(sum(n), 0) FROM posthaste.claim_@k@);
  END CASE;
END $f$
$sql$);

-- Reclaims an aside slot that has no unclaimed job, if every row of it is closed; what still runs in it is held. How far it is verified is
-- remembered by the session, as posthaste.verified_aside: a server that crashed may have forgotten acknowledgements, and its sessions with
-- them. NULL when it is truncated, else why not: 'open', or who holds a lock.
CREATE FUNCTION posthaste.reclaim_aside(p_low bigint, p_batches integer, p_limit integer) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_slot integer := 4 + p_low % 2;
  v_known text := current_setting('posthaste.verified_aside', true);
  v_from bigint := CASE WHEN split_part(v_known, ':', 1) = p_low::text THEN split_part(v_known, ':', 2)::bigint ELSE 0 END;
  v_batch bigint;
  v_done boolean;
BEGIN
  SELECT v.o_batch, v.o_done INTO v_batch, v_done FROM posthaste.verify(v_slot, v_from, p_batches) v;
  PERFORM set_config('posthaste.verified_aside', concat(p_low, ':', v_batch), false);
  IF v_done THEN
    RETURN posthaste.truncate(v_slot);
  END IF;
  IF v_batch = v_from THEN
    PERFORM posthaste.hold(v_slot, v_batch, p_limit);
  END IF;
  RETURN 'open';
END $f$;

-- One step of keeping the aside slots small: reclaims what is spent, and starts a compaction when at least p_spent rows and half of a slot
-- are. o_state says what it did: 'moved', 'compacting', 'truncated', 'blocked' (o_blocker holds a lock) or 'none'. A compaction is paid for
-- by the jobs that passed since the last one.
CREATE FUNCTION posthaste.tidy_aside(p_spent bigint, p_limit integer, OUT o_state text, OUT o_blocker text) LANGUAGE plpgsql AS $f$
DECLARE
  r record;
  v_slot integer;
  v_why text;
BEGIN
  o_state := 'none';
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    o_state := 'busy';
    RETURN;
  END IF;
  SELECT * INTO r FROM posthaste.ring();
  v_slot := 4 + r.aside_low % 2;
  IF (SELECT l.o_queue FROM posthaste.pending_lane(v_slot) l) IS NOT NULL THEN
    IF r.aside_low < r.aside_current THEN
      PERFORM posthaste.move_aside(v_slot, p_limit);
      o_state := 'moved';
    ELSIF posthaste.is_half_spent(v_slot, p_spent) THEN
      PERFORM setval('posthaste.aside_current', r.aside_current + 1);
      o_state := 'compacting';
    END IF;
    RETURN;
  END IF;
  IF r.aside_scan = r.aside_low AND r.aside_low < r.aside_current THEN
    PERFORM setval('posthaste.aside_scan', r.aside_current);
  END IF;
  IF pg_relation_size(('posthaste.ready_' || v_slot)::regclass) > 0 THEN
    v_why := posthaste.reclaim_aside(r.aside_low, 10000, p_limit);
    IF v_why IS NOT NULL THEN
      o_state := CASE WHEN v_why = 'open' THEN 'none' ELSE 'blocked' END;
      o_blocker := nullif(v_why, 'open');
      RETURN;
    END IF;
    o_state := 'truncated';
  END IF;
  IF r.aside_low < r.aside_current THEN
    PERFORM setval('posthaste.aside_low', r.aside_low + 1);
  ELSIF o_state = 'truncated' THEN
    PERFORM setval('posthaste.aside_scan', r.aside_current + 1);
  END IF;
END $f$;

-- Whether at least so many rows of an aside slot are spent, and half of them.
CREATE FUNCTION posthaste.is_half_spent(p_slot integer, p_spent bigint) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_spent bigint := posthaste.spent_in(p_slot);
BEGIN
  RETURN v_spent >= p_spent AND v_spent * 2 >= posthaste.rows_in(p_slot);
END $f$;
