-- Lanes: finds those with unclaimed jobs, and removes unclaimed jobs to move them elsewhere.

-- Whether a lane of this slot has unclaimed jobs.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.pending_0(p_queue text, p_priority integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_0;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- callers find lanes by their rows, and none of these was claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_0 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_0 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_0 r
            WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
-- end

-- The first lane of this slot with unclaimed jobs, including the internal lanes of queue ''. Costs
-- one index probe per lane.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.pending_lane_0(OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_0 r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_0(o_queue, o_priority);
  END LOOP;
END $f$;
-- end

-- The first lane of a slot with unclaimed jobs.
CREATE OR REPLACE FUNCTION posthaste.pending_lane(
  p_slot integer, OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_0() l;
    -- end
  END CASE;
END $f$;

-- Whether at least this many lanes of a queue have rows in this slot, finished or not. Costs one
-- index probe per lane.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.has_lanes_0(p_queue text, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_priority bigint := -2147483649;
BEGIN
  FOR i IN 1 .. p_lanes LOOP
    v_priority := posthaste.next_priority_0(p_queue, v_priority, 2147483648);
    IF v_priority IS NULL THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $f$;
-- end

-- Whether some queue has this many lanes in this slot.
CREATE OR REPLACE FUNCTION posthaste.has_lanes(p_slot integer, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_queue text;
BEGIN
  FOR v_queue IN
    SELECT l.queue FROM posthaste.lane l GROUP BY l.queue HAVING count(*) >= p_lanes
  LOOP
    CASE p_slot
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN IF posthaste.has_lanes_0(v_queue, p_lanes) THEN RETURN true; END IF;
      -- end
    END CASE;
  END LOOP;
  RETURN false;
END $f$;

-- Forgets lanes without a row in any slot, of queues with more than 32 known lanes: each known lane
-- costs a probe at each poll.
CREATE OR REPLACE FUNCTION posthaste.forget_lanes() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  DELETE FROM posthaste.lane l
   WHERE l.queue IN (SELECT m.queue FROM posthaste.lane m GROUP BY m.queue HAVING count(*) > 32)
     -- repeat: slots 0..5
     AND NOT EXISTS (SELECT FROM posthaste.ready_0 r
                      WHERE r.queue = l.queue AND r.priority = l.priority)
     -- end
  ;
END $f$;

-- Removes up to p_limit unclaimed jobs of a lane from this slot, in the lane's order, by claiming
-- them as worker 0; the caller's transaction writes them elsewhere. Expired jobs among them are
-- stored as expired and not returned.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed_0(
  p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.lane_has_work_0(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch
      FROM posthaste.claim_0(p_queue, p_priority, 0, v_token, p_limit, 67108864, false,
        posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_0(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 k
                      WHERE k.xid = r.xid AND k.id = r.id);
    -- mutant: moving to the overflow closes no rows:
    --   | INSERT INTO posthaste.batch_done_0 (batch, outcome) SELECT v_batch, 5 WHERE false;
    INSERT INTO posthaste.batch_done_0 (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;
-- end

-- Removes unclaimed jobs of a lane from a slot.
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed(
  p_slot integer, p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN
      RETURN QUERY SELECT * FROM posthaste.remove_unclaimed_0(p_queue, p_priority, p_limit);
    -- end
  END CASE;
END $f$;
