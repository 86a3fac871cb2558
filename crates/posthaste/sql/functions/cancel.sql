-- Cancel: ends waiting jobs, and has workers end running ones.

-- Those of these jobs that wait unclaimed in this slot, with their lanes.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_0(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_0 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_0 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have ids too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;
-- end

-- Those of these jobs that a worker is running.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.running_among_0(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_0() r WHERE r.id = ANY (p_ids)
$f$;
-- end

-- Locks the promoter only if something was found. Returns jobs that may still be here because
-- another session holds the lock and the caller does not wait for it.
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

-- Those of these jobs that a worker is running, or that are still in posthaste.in_flight.
CREATE OR REPLACE FUNCTION posthaste.in_flight_among(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  -- repeat: slots 0..5
  SELECT * FROM posthaste.running_among_0(p_ids) UNION ALL
  -- end
  SELECT h.id FROM posthaste.in_flight h WHERE h.id = ANY (p_ids)
$f$;

-- All running jobs.
CREATE OR REPLACE FUNCTION posthaste.all_running() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  -- repeat: slots 0..5
  SELECT r.id FROM posthaste.running_0() r UNION ALL
  -- end
  SELECT h.id FROM posthaste.in_flight h WHERE h.state = 'running'
$f$;

-- Cancels jobs. Waiting ones are stored as cancelled and never run; running ones are ended by their
-- workers. Returns a row for each unfinished job: 'cancelled', 'running' (being cancelled), or the
-- state in which it had ended before. 'available' means that it still waits and must be passed
-- again: each lane costs a lock, so one call cancels in a hundred lanes, twice. Needs a separate
-- READ COMMITTED transaction, because its locks (lanes and the promoter's) block others until it
-- ends.
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
  v_waiting bigint[];    -- those that waited at the last attempt, anywhere
  v_lane record;
BEGIN
  PERFORM posthaste.require_own_store();
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: cancel needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.limit_send_time();
  -- A job that moves between two attempts is found by the second. Only the first waits for locks:
  -- the promoter's, then lanes in the order in which claims take them. The second already holds
  -- some and would wait in another order.
  FOR v_try IN 1 .. 2 LOOP
    -- Jobs that are being confirmed or handed out are skipped.
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
  -- Removes requests for ended jobs, including those seen running by this call. A job found nowhere
  -- for ten seconds is done; for a shorter time it may be a move that both attempts missed.
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

-- Run by the leader: cancels jobs that were running when they were cancelled and wait again,
-- because they were released or are retried. Running jobs are left alone, however many there are.
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
