-- Cancel: ends jobs where they wait, and has workers end those that run.

-- Those of these jobs that wait in this slot, with their lanes.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_0(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_0 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_0 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have numbers too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;
-- end

-- Those of these jobs that a worker has now.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.running_among_0(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_0() r WHERE r.id = ANY (p_ids)
$f$;
-- end

-- The promoter is kept waiting only where something was found. Returns those that may lie there
-- still, because somebody has its lock and is not waited for.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.cancel_scheduled_6(p_ids bigint[], p_waits boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(SELECT r.ctid FROM posthaste.scheduled_6 r WHERE r.id = ANY (p_ids));
BEGIN
  IF cardinality(v_found) > 0 THEN
    IF p_waits THEN
      PERFORM pg_advisory_xact_lock(1885893476, 2);
    ELSIF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
      RETURN ARRAY(SELECT r.id FROM posthaste.scheduled_6 r WHERE r.ctid = ANY (v_found));
    END IF;
    PERFORM posthaste.close_scheduled_6(v_found, 'cancelled');
  END IF;
  RETURN '{}';
END $f$;
-- end

-- Those of these jobs that a worker has now, or that lie in posthaste.in_flight still.
CREATE OR REPLACE FUNCTION posthaste.in_flight_among(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  -- repeat: slots 0..5
  SELECT * FROM posthaste.running_among_0(p_ids) UNION ALL
  -- end
  SELECT h.id FROM posthaste.in_flight h WHERE h.id = ANY (p_ids)
$f$;

-- All jobs that workers have now.
CREATE OR REPLACE FUNCTION posthaste.all_running() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  -- repeat: slots 0..5
  SELECT r.id FROM posthaste.running_0() r UNION ALL
  -- end
  SELECT h.id FROM posthaste.in_flight h WHERE h.state = 'running'
$f$;

-- Cancels jobs: those that wait are kept as cancelled and never run; of those that run, their
-- workers end them. Answers for each job that is not done: 'cancelled', 'running' (it is being
-- cancelled), or how it had ended before; 'available' says that it still waits, and is to be named
-- once more: each lane costs a lock, so one call cancels in a hundred lanes, twice. One transaction
-- of its own, READ COMMITTED, because what it locks (lanes, and the promoter) keeps others waiting
-- until it ends.
CREATE OR REPLACE FUNCTION posthaste.cancel_many(ids bigint[])
RETURNS TABLE (id bigint, state text) LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
  v_left bigint[] := ids;
  v_slots integer[];     -- where some of them wait, in the first hundred lanes
  v_queues text[];
  v_priorities integer[];
  v_scheduled bigint[];
  v_waiting bigint[];    -- those that waited at the last look, wherever
  v_lane record;
BEGIN
  PERFORM posthaste.require_own_store();
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: cancel needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.bound_answers();
  -- A job that moves from one place to another between two looks is met at the second try. Only the
  -- first waits for locks, the promoter's and then lanes in the order in which claims take them:
  -- the second, which has some, would wait for them in another order.
  FOR v_try IN 1 .. 2 LOOP
    -- One that is just being confirmed, or handed out, is not waited for.
    WITH free AS (
      SELECT h.id FROM posthaste.in_flight h
        WHERE h.id = ANY (v_left) AND h.state IN ('awaiting', 'quarantined')
        FOR UPDATE SKIP LOCKED),
    gone AS (
      DELETE FROM posthaste.in_flight h USING free
        WHERE h.id = free.id RETURNING posthaste.from_in_flight(h) AS job)
    INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone.job, 'cancelled') d
      ON CONFLICT DO NOTHING;
    v_scheduled := posthaste.cancel_scheduled_6(v_left, v_try = 1)
      || posthaste.cancel_scheduled_7(v_left, v_try = 1);
    SELECT array_agg(w.slot) FILTER (WHERE w.lane <= 100),
           array_agg(w.queue) FILTER (WHERE w.lane <= 100),
           array_agg(w.priority) FILTER (WHERE w.lane <= 100), v_scheduled || array_agg(w.id)
      INTO v_slots, v_queues, v_priorities, v_waiting
      FROM (SELECT a.*, dense_rank() OVER (ORDER BY a.queue, a.priority) AS lane FROM (
        -- repeat: slots 0..5
        SELECT 0 /*slot*/ AS slot, w.* FROM posthaste.unclaimed_in_0(v_left) w UNION ALL
        -- end
        SELECT 0, 0, '', 0 WHERE false) a) w;
    IF v_try = 1 THEN
      FOR v_lane IN SELECT DISTINCT o.queue COLLATE "C", o.priority
        FROM unnest(v_queues, v_priorities) o(queue, priority) ORDER BY 1, 2 LOOP
        PERFORM posthaste.hold_lane(v_lane.queue, v_lane.priority);
      END LOOP;
    END IF;
    -- repeat: slots 0..5
    PERFORM posthaste.close_unclaimed_0(o.queue, o.priority, NULL, v_left)
      FROM (SELECT DISTINCT u.queue, u.priority
        FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority)
        WHERE u.slot = 0 /*slot*/) o;
    -- end
    INSERT INTO posthaste.cancelling (id) SELECT r FROM posthaste.in_flight_among(v_left) r
      ORDER BY r ON CONFLICT DO NOTHING;
    v_left := ARRAY(SELECT u FROM unnest(v_left) u
                     WHERE NOT EXISTS (SELECT FROM posthaste.dead d WHERE d.id = u)
                       AND u NOT IN (SELECT r FROM posthaste.in_flight_among(v_left) r));
    EXIT WHEN cardinality(v_left) = 0;
  END LOOP;
  -- Ended, also while this call had seen it running. Nowhere to be found for a while: done. A
  -- shorter while may be a move that was missed twice.
  DELETE FROM posthaste.cancelling c
   WHERE c.id = ANY (ids) AND (EXISTS (SELECT FROM posthaste.dead d WHERE d.id = c.id)
                               OR (c.id = ANY (v_left) AND c.id <> ALL (v_waiting)
                                   AND c.asked_at < clock_timestamp() - interval '10 s'));
  RETURN QUERY
    SELECT u.id, coalesce(d.state, CASE WHEN c.id IS NULL THEN 'available' ELSE 'running' END)
      FROM (SELECT DISTINCT i FROM unnest(ids) i) u(id) LEFT JOIN posthaste.dead d ON d.id = u.id
        LEFT JOIN posthaste.cancelling c ON c.id = u.id
     WHERE d.id IS NOT NULL OR c.id IS NOT NULL OR u.id = ANY (v_waiting);
END $f$;

-- The leader's part: the one that was running when it was cancelled, and was given back or is to be
-- tried again, is met where it waits. What runs on is left alone, and in nobody's way, however many
-- that are.
CREATE OR REPLACE FUNCTION posthaste.cancel_again() RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_ids bigint[] := '{}';
BEGIN
  IF EXISTS (SELECT FROM posthaste.cancelling) THEN
    v_ids := ARRAY(SELECT c.id FROM posthaste.cancelling c
                    WHERE c.id NOT IN (SELECT r FROM posthaste.all_running() r)
                    ORDER BY c.asked_at LIMIT 1000);
  END IF;
  IF cardinality(v_ids) = 0 OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM posthaste.cancel_many(v_ids) c WHERE c.state <> 'running');
END $f$;

CREATE OR REPLACE FUNCTION posthaste.cancel(job_id bigint) RETURNS text LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT c.state FROM posthaste.cancel_many(ARRAY[job_id]) c
$f$;
