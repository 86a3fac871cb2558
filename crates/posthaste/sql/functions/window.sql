-- Claim: selects a worker's next jobs by a cursor that dead and finished rows cannot slow down.
--
-- Each lane (queue, priority) of a slot is read in windows. A window is the set of rows that are
-- visible in snapshot hi and were not visible in snapshot lo, the hi of the previous window.
-- Snapshots of a lane only grow, so each committed row falls into exactly one window, however late
-- its transaction commits. Within a window rows are claimed in the order (xid, id), a batch at a
-- time; the batch's claim row records how far it went, and is the lane's next cursor.

-- A lane's advisory lock: serialises its claimers. A hash collision only makes two lanes wait for
-- each other.
CREATE OR REPLACE FUNCTION posthaste.lane_key(queue text, priority integer)
RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT hashtext(queue || ' ' || priority::text)
$f$;

-- Waits for the lane and locks it. Read the cursor in a separate statement afterwards: it may have
-- moved meanwhile.
CREATE OR REPLACE FUNCTION posthaste.hold_lane(queue text, priority integer)
RETURNS void LANGUAGE sql AS $f$
  SELECT pg_advisory_xact_lock(1885893475, posthaste.lane_key(queue, priority))
$f$;

-- The snapshot for a cursor: the current one, with the own transaction counted as running. Postgres
-- omits the own xid from a snapshot's list, so that rows which this transaction writes later would
-- seem to precede the next window.
CREATE OR REPLACE FUNCTION posthaste.cursor_snapshot() RETURNS pg_snapshot LANGUAGE plpgsql AS $f$
DECLARE
  s pg_snapshot := pg_current_snapshot();
  own xid8 := pg_current_xact_id_if_assigned();
BEGIN
  -- mutant: a cursor treats its own transaction as finished: IF true THEN
  IF own IS NULL OR own >= pg_snapshot_xmax(s) THEN
    RETURN s;
  END IF;
  RETURN (least(own, pg_snapshot_xmin(s)) || ':' || pg_snapshot_xmax(s) || ':'
          || array_to_string(ARRAY(SELECT x FROM (SELECT own AS x UNION SELECT pg_snapshot_xip(s)) u
                ORDER BY x), ','))::pg_snapshot;
END $f$;

-- Computes the bounds of a window.
CREATE OR REPLACE FUNCTION posthaste.with_bounds(w posthaste.lane_window)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  IF w.at_xid >= pg_snapshot_xmax(w.lo) THEN
    w.from_xid := w.at_xid; w.from_id := w.at_id;
  ELSE
    w.from_xid := pg_snapshot_xmax(w.lo); w.from_id := -1;
  END IF;
  IF pg_snapshot_xmin(w.lo) = pg_snapshot_xmax(w.lo) THEN
    w.late := '{}';  -- no transaction was running
  ELSE
    w.late := ARRAY(SELECT p FROM pg_snapshot_xip(w.lo) p
                     -- mutant: windows ignore transactions that were in progress:
                     --   | WHERE false AND pg_visible_in_snapshot(p, w.hi)
                     WHERE p >= w.at_xid AND pg_visible_in_snapshot(p, w.hi)
                       AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  END IF;
  RETURN w;
END $f$;

-- The window after this one, up to now.
CREATE OR REPLACE FUNCTION posthaste.next_window(w posthaste.lane_window, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  w.lo := w.hi; w.hi := p_now; w.at_xid := '0'; w.at_id := 0; w.is_fresh := true;
  RETURN posthaste.with_bounds(w);
END $f$;

-- The window at the lane's cursor, or the next one if that is exhausted. The holder of the lane
-- passes the current snapshot. For others it is taken after the cursor was read: if the cursor
-- moved between, it would be after its own window's end, and rows would be claimed twice.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.window_0(p_queue text, p_priority integer, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  -- mutant: the snapshot is taken before the cursor is read (insert):
  --   | v_before pg_snapshot := coalesce(p_now, posthaste.cursor_snapshot());
  v_exhausted boolean;
BEGIN
  -- bug: the cursor steps back by a job:
  --   | SELECT batch, lo, hi, to_xid, CASE WHEN batch % 3 = 0 THEN to_id - 1 ELSE to_id END,
  --   |   exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
  -- gate: a slow claim waits before it reads the cursor (insert):
  --   | IF 0 /*slot*/ < 4 AND current_setting('test.is_slow', true) = 'yes' THEN
  --   |   PERFORM posthaste.gate(8);
  --   | END IF;
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
         w.at_id, v_exhausted
    FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
      ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    -- mutant: windows ignore xids at or beyond xmax:
    --   | RETURN posthaste.blind_0(
    --   |   posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot())));
    -- mutant: the snapshot is taken before the cursor is read:
    --   | RETURN posthaste.next_window(w, v_before);
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  -- mutant: windows ignore xids at or beyond xmax:
  --   | RETURN posthaste.blind_0(posthaste.with_bounds(w));
  RETURN posthaste.with_bounds(w);
END $f$;
-- end

-- Whether this window has unclaimed rows.
-- repeat: slots 0..5
-- mutant: windows ignore xids at or beyond xmax (insert):
--   | CREATE FUNCTION posthaste.blind_0(w posthaste.lane_window)
--   | RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
--   | BEGIN
--   |   IF w.from_id = -1 THEN
--   |     w.from_xid := greatest(w.from_xid, (SELECT c.xmin::text::xid8
--   |       FROM posthaste.claim_0 c WHERE c.batch = w.batch));
--   |   END IF;
--   |   RETURN w;
--   | END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_0(
  p_queue text, p_priority integer, w posthaste.lane_window)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_0 r
              WHERE r.queue = p_queue AND r.priority = p_priority
                -- mutant: windows end at xmin:
                --   | AND (r.xid, r.id) > (w.from_xid, w.from_id)
                --   | AND r.xid < pg_snapshot_xmin(w.hi)
                AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;
-- end

-- The extent of a batch: its last row, its number of rows, their bytes, and whether some have
-- expired. o_first_id: the id of its first row if all its rows are of one transaction, else NULL.
-- Only the columns for that decision are read: the jobs themselves are read once, when they are
-- handed out. With p_expired it ends before the first job that has not expired. Without
-- transactions that committed late, one statement reads the batch, unless it has too many bytes.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.batch_extent_0(
  p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
  p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_first_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  -- mutant: windows end at xmin: v_end xid8 := pg_snapshot_xmin(w.hi);
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
  v_xids xid8[]; v_ids bigint[];
BEGIN
  IF cardinality(w.late) = 0 AND NOT p_expired THEN
    SELECT count(*), coalesce(sum(r.kwargs_bytes), 0), coalesce(bool_or(r.expired), false),
           array_agg(r.xid), array_agg(r.id)
      INTO o_n, o_bytes, o_mixed, v_xids, v_ids
      -- bug: claims ignore the expiry of jobs:
      --   | FROM (SELECT r.xid, r.id, r.kwargs_bytes, false AS expired
      FROM (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() AS expired
              FROM posthaste.ready_0 r
             WHERE r.queue = p_queue AND r.priority = p_priority
               -- mutant: the scan has only two bounds:
               --   | AND r.xid >= w.from_xid AND (r.xid > w.from_xid OR r.id > w.from_id)
               --   | AND r.xid < v_end
               AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
               AND pg_visible_in_snapshot(r.xid, v_hi)
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) r;
    IF o_bytes < p_bytes THEN
      o_xid := v_xids[o_n]; o_id := v_ids[o_n];
      o_first_id := CASE WHEN v_xids[1] = o_xid THEN v_ids[1] END;
      RETURN;
    END IF;
  END IF;
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        -- bug: claims ignore the expiry of jobs: SELECT r.xid, r.id, r.kwargs_bytes, false
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_0 r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      -- bug: claims ignore the expiry of jobs: (SELECT r.xid, r.id, r.kwargs_bytes, false
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority
          -- mutant: the scan has only two bounds:
          --   | AND r.xid >= w.from_xid AND (r.xid > w.from_xid OR r.id > w.from_id)
          --   | AND r.xid < v_end
          AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
          AND pg_visible_in_snapshot(r.xid, v_hi)
        ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
    ) both_parts ORDER BY xid, id LIMIT p_limit
  LOOP
    IF v_expired <> p_expired THEN
      IF p_expired THEN
        o_id := o_id - 1;
        EXIT;
      END IF;
      o_mixed := true;
    END IF;
    o_n := o_n + 1;
    o_bytes := o_bytes + v_size;
    EXIT WHEN o_bytes >= p_bytes;
  END LOOP;
END $f$;
-- end

-- Moves a lane's cursor past an empty window.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.skip_window_0(
  p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  -- mutant: a slow scan moves the cursor without checking again: IF true THEN
  IF w.batch = (SELECT n.batch FROM posthaste.window_0(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_0 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
        to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo,
        w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;
-- end

-- The first priority of a queue, above p_above, with jobs in this slot.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.next_priority_0(p_queue text, p_above bigint, p_below bigint)
RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_0 r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below
     ORDER BY r.queue, r.priority LIMIT 1
$f$;
-- end

-- Slots that may have unclaimed jobs, oldest first. Jobs in the overflow are older than the ready
-- log; of two overflow segments the newer one has the older jobs, because compaction moves a lane's
-- oldest jobs first. In plpgsql, which plans it once per session: a claim calls it twice.
CREATE OR REPLACE FUNCTION posthaste.scan_slots() RETURNS integer[] LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_slots integer[] := '{}';
  g bigint; v_end bigint;
BEGIN
  v_end := pg_sequence_last_value('posthaste.overflow_scan'::regclass);
  g := pg_sequence_last_value('posthaste.overflow_current'::regclass);
  WHILE g >= v_end LOOP
    v_slots := pg_catalog.array_append(v_slots, (4::bigint + g % 2::bigint)::integer);
    g := g - 1::bigint;
  END LOOP;
  g := pg_sequence_last_value('posthaste.ready_scan'::regclass);
  v_end := pg_sequence_last_value('posthaste.ready_current'::regclass);
  WHILE g <= v_end LOOP
    v_slots := pg_catalog.array_append(v_slots, (g % 4::bigint)::integer);
    g := g + 1::bigint;
  END LOOP;
  RETURN v_slots;
END $f$;

-- Whether the lane has unclaimed jobs in this slot, without a lock.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.lane_has_work_0(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_0(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.window_has_rows_0(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If an empty scan was slow (it read rows of an open or rolled-back bulk insert), the lane's
      -- cursor is moved past them, so that the next check does not read them again.
      -- gate: a claim waits before it skips a window: IF posthaste.gate(5) = 5 THEN
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_window_0(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;
-- end

-- Whether the lane has unclaimed jobs, without a lock.
CREATE OR REPLACE FUNCTION posthaste.lane_has_work(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    CASE v_slot
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN IF posthaste.lane_has_work_0(p_queue, p_priority, p_worker) THEN
        RETURN true; END IF;
      -- end
    END CASE;
  END LOOP;
  RETURN false;
END $f$;
