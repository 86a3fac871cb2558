-- Maintenance: waiting jobs that expired or were cancelled.

-- Closes unclaimed jobs of a lane and marks them, so that claims skip them: expired ones, at most
-- p_limit, or, if ids are given, cancelled ones.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.close_unclaimed_0(
  p_queue text, p_priority integer, p_limit bigint, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_0;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_0 r
     WHERE r.queue = p_queue AND r.priority = p_priority
       AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp()
           -- gate: expiry reads a clock that is two hours ahead (insert): + interval '2 hours'
           ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  -- mutant: expiry does not mark closed rows:
  marked AS (INSERT INTO posthaste.closed_unclaimed_0 (xid, id) SELECT xid, id FROM gone),
  noted AS (INSERT INTO posthaste.left_0 (xid, id, queue, priority, name, tag) SELECT xid, id,
      -- mutant: closing an unclaimed job is not counted:
      --   | queue, priority, name, tag FROM gone WHERE false),
      queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.job_done_0 (xid, id, outcome) SELECT xid, id,
      CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.*
    FROM gone,
         posthaste.to_dead(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d
    ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;
-- end

-- Finds lanes of this slot with jobs that expired unclaimed, without locking, and closes those
-- jobs. Claimed jobs are left to their workers.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.expire_0(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs a lock. A random hundred, so that lanes with busy claimers do not crowd out the
  -- others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_0 r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid,
            to_id, exhausted
                     FROM posthaste.claim_0 ORDER BY queue, priority, batch DESC) c ON (c.queue,
                       c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         -- gate: expiry reads a clock that is two hours ahead (insert): + interval '2 hours'
         AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id,
             c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_unclaimed_0(v_lane.queue, v_lane.priority,
        p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$;
-- end

-- Finds scheduled jobs that expired. Reading the slot takes long, so the promoter is locked only
-- while they are closed.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.expire_6(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.scheduled_6 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.expires_at <= clock_timestamp()
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
         WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     LIMIT p_limit);
BEGIN
  IF cardinality(v_found) = 0 OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM posthaste.close_scheduled_6(v_found, 'expired'));
END $f$;
-- end

-- Closes the scheduled jobs at these tuple ids: stored in this state, or sent to work at once if it
-- is 'available'. Returns them without those promoted meanwhile. The caller holds the promoter's
-- lock.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.close_scheduled_6(p_places tid[], p_state text)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  RETURN QUERY
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.scheduled_6 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.ctid = ANY (p_places)
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
           WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE),
  marked AS (
    INSERT INTO posthaste.closed_unclaimed_6 (xid, id, outcome)
    SELECT xid, id, CASE p_state WHEN 'available' THEN 1 WHEN 'expired' THEN 3 ELSE 9 END
      FROM gone),
  noted AS (
    INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
    SELECT coalesce(own_queue, queue), coalesce(own_priority, priority), name, tag, w.what, count(*)
      -- mutant: promotion is not counted:
      --   | FROM gone, posthaste.wait_kind(scheduled_at, attempt) w(what) WHERE false
      --   |  GROUP BY 1, 2, 3, 4, 5),
      FROM gone, posthaste.wait_kind(scheduled_at, attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
  sent AS (
    INSERT INTO posthaste.store
    SELECT a.*
      FROM gone,
        LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(gone.queue,
            (SELECT posthaste.listeners())) AS slot,
                                 clock_timestamp() AS now OFFSET 0) e,
                                 posthaste.reschedule_row(gone, e.slot, e.now) a
     WHERE p_state = 'available'),
  kept AS (
    INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, p_state) d
      WHERE p_state <> 'available' ON CONFLICT (id) DO NOTHING)
  SELECT gone.* FROM gone;
END $f$;
-- end

-- Finds jobs of one slot that expired without a consumer, and stores them as expired. One slot per
-- transaction, so that locks for one are not held while another is read.
CREATE OR REPLACE FUNCTION posthaste.expire(p_slot integer, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  CASE p_slot
    -- repeat: slots 0..7
    WHEN 0 /*slot*/ THEN RETURN posthaste.expire_0(p_limit);
    -- end
  END CASE;
END $f$;
