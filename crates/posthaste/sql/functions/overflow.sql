-- Maintenance: the overflow. Jobs that no worker claims would pin the ready log, so they are moved
-- to a separate slot, which is compacted from time to time.

-- Moves up to p_limit unclaimed jobs of a slot to the overflow, in order. Called when they pin the
-- full ready log, and to compact an overflow slot. Expired jobs among them are stored as expired
-- and not counted: 0 does not mean that there was nothing.
CREATE OR REPLACE FUNCTION posthaste.move_to_overflow(p_slot integer, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_current bigint;
  v_to smallint;
  v_queue text;
  v_priority integer;
  v_rows bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  v_current := pg_sequence_last_value('posthaste.overflow_current'::regclass);
  v_to := 4 + v_current % 2;
  IF p_slot = v_to THEN
    RETURN 0;
  END IF;
  SELECT l.* INTO v_queue, v_priority FROM posthaste.pending_lane(p_slot) l;
  IF v_queue IS NULL THEN
    RETURN 0;
  END IF;
  -- Claims read the overflow from now on; an empty slot does no harm.
  IF pg_sequence_last_value('posthaste.overflow_scan'::regclass) > v_current THEN
    PERFORM setval('posthaste.overflow_scan', v_current);
  END IF;
  INSERT INTO posthaste.store SELECT a.*
    FROM posthaste.remove_unclaimed(p_slot, v_queue, v_priority, p_limit) r,
         posthaste.reschedule_row(r, v_to) a;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- The number of rows of a slot: counted while it is small, else estimated from sampled pages. A
-- plan for this slot alone, so that no other is locked.
CREATE OR REPLACE FUNCTION posthaste.rows_in(p_slot integer) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_table regclass := 'posthaste.' || CASE WHEN p_slot < 6 THEN 'ready_'
      ELSE 'scheduled_' END || p_slot;
  v_percent real := least(100,
      6400.0 * current_setting('block_size')::bigint / greatest(1, pg_relation_size(v_table)));
BEGIN
  RETURN (SELECT count(*) FROM posthaste.store TABLESAMPLE SYSTEM (v_percent)
      WHERE slot = p_slot::smallint) * 100 / v_percent;
END $f$;

-- The number of claimed rows of an overflow slot.
CREATE OR REPLACE FUNCTION posthaste.claimed_rows(p_slot integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 4..5
    WHEN 4 /*slot*/ THEN RETURN (SELECT coalesce(sum(n), 0) FROM posthaste.claim_4);
    -- end
  END CASE;
END $f$;

-- Truncates an overflow slot without unclaimed jobs once every row is closed; running jobs are
-- moved to posthaste.in_flight. The session remembers the verified position as
-- posthaste.verified_overflow: a server that crashed may have lost acknowledgements, and its
-- sessions with them. Returns NULL when it is truncated, else the reason: 'open', or the holder of
-- a lock.
CREATE OR REPLACE FUNCTION posthaste.reclaim_overflow(
  p_low bigint, p_batches integer, p_limit integer)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot integer := 4 + p_low % 2;
  -- The oid distinguishes this store from one that was dropped.
  v_this text := concat(p_low, '@', 'posthaste.store'::regclass::oid);
  v_known text := current_setting('posthaste.verified_overflow', true);
  v_from bigint := CASE WHEN split_part(v_known, ':', 1) = v_this
      THEN split_part(v_known, ':', 2)::bigint ELSE 0 END;
  v_batch bigint;
  v_done boolean;
BEGIN
  SELECT v.o_batch, v.o_done INTO v_batch, v_done
    FROM posthaste.verify(v_slot, v_from, p_batches) v;
  PERFORM set_config('posthaste.verified_overflow', concat(v_this, ':', v_batch), false);
  IF v_done THEN
    RETURN posthaste.truncate(v_slot);
  END IF;
  IF v_batch = v_from THEN
    PERFORM posthaste.move_running(v_slot, v_batch, p_limit);
  END IF;
  RETURN 'open';
END $f$;

-- One step of keeping the overflow slots small: truncates finished ones, and starts a compaction
-- when at least p_spent rows or p_bytes bytes, and half of a slot, are finished. o_state: 'moved',
-- 'compacting', 'truncated', 'locked' (o_blocker holds a lock), 'busy' or 'none'. A compaction
-- copies no more rows than have finished since the previous one.
CREATE OR REPLACE FUNCTION posthaste.tidy_overflow(
  p_spent bigint, p_limit integer, p_bytes bigint DEFAULT 50331648,
  OUT o_state text, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  r record;
  v_slot integer;
  v_why text;
BEGIN
  o_state := 'none';
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    o_state := 'busy';
    RETURN;
  END IF;
  SELECT * INTO r FROM posthaste.segments();
  v_slot := 4 + r.overflow_low % 2;
  IF (SELECT l.o_queue FROM posthaste.pending_lane(v_slot) l) IS NOT NULL THEN
    IF r.overflow_low < r.overflow_current THEN
      PERFORM posthaste.move_to_overflow(v_slot, p_limit);
      o_state := 'moved';
    ELSIF posthaste.is_half_finished(v_slot, p_spent, p_bytes) THEN
      PERFORM setval('posthaste.overflow_current', r.overflow_current + 1);
      o_state := 'compacting';
    END IF;
    RETURN;
  END IF;
  IF r.overflow_scan = r.overflow_low AND r.overflow_low < r.overflow_current THEN
    PERFORM setval('posthaste.overflow_scan', r.overflow_current);
  END IF;
  IF pg_relation_size(('posthaste.ready_' || v_slot)::regclass) > 0 THEN
    v_why := posthaste.reclaim_overflow(r.overflow_low, 10000, p_limit);
    IF v_why IS NOT NULL THEN
      o_state := CASE WHEN v_why = 'open' THEN 'none' ELSE 'locked' END;
      o_blocker := nullif(v_why, 'open');
      RETURN;
    END IF;
    o_state := 'truncated';
  END IF;
  IF r.overflow_low < r.overflow_current THEN
    PERFORM setval('posthaste.overflow_low', r.overflow_low + 1);
  ELSIF o_state = 'truncated' THEN
    PERFORM setval('posthaste.overflow_scan', r.overflow_current + 1);
  END IF;
END $f$;

-- Whether at least this many rows or bytes of an overflow slot, and half of it, are finished.
CREATE OR REPLACE FUNCTION posthaste.is_half_finished(
  p_slot integer, p_spent bigint, p_bytes bigint)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_spent bigint := posthaste.claimed_rows(p_slot);
BEGIN
  RETURN (v_spent >= p_spent OR v_spent > 0
      AND pg_table_size(('posthaste.ready_' || p_slot)::regclass) > p_bytes)
    AND v_spent * 2 >= posthaste.rows_in(p_slot);
END $f$;
