-- Operate: what people do to queues and jobs: pause and resume, limit, cancel, redrive.

-- From the commit of this on, nothing of the queue is claimed; what runs goes on, and everybody may enqueue. False when it is paused already.
CREATE FUNCTION posthaste.pause(queue text) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.queue AS q (name, paused_at) VALUES (queue, clock_timestamp())
  ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at WHERE q.paused_at IS NULL;
  RETURN FOUND;
END $f$;

-- Workers claim from the queue again. False when it was not paused.
CREATE FUNCTION posthaste.resume(queue text) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  UPDATE posthaste.queue q SET paused_at = NULL WHERE q.name = queue AND q.paused_at IS NOT NULL;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM posthaste.ring_for(queue, posthaste.bell());
  RETURN true;
END $f$;

-- A rate: a bucket of q.burst jobs that is filled by one every q.per / q.rate. Its cell holds, in microseconds since 1970, when it will be full
-- again. A sequence, so that nothing is updated and a pinned horizon does not matter; what is used up is so although the claim is rolled back. A
-- clock that steps back costs one bucket's time.
CREATE FUNCTION posthaste.full_at(q posthaste.queue, OUT o_full numeric, OUT o_now numeric, OUT o_step numeric) LANGUAGE plpgsql AS $f$
BEGIN
  o_now := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  o_step := extract(epoch FROM q.per) * 1000000 / q.rate;
  o_full := least(greatest(pg_sequence_last_value(q.pace), o_now), o_now + o_step * q.burst);
END $f$;

-- How many jobs of the queue may be claimed now. Its claimers go one by one from here on.
CREATE FUNCTION posthaste.allowance(q posthaste.queue) RETURNS integer LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock(1885893479, q.pace::oid::integer);
  RETURN (SELECT floor((f.o_now - f.o_full) / f.o_step + q.burst) FROM posthaste.full_at(q) f);
END $f$;

-- After how many milliseconds the next one may be.
CREATE FUNCTION posthaste.until_next(q posthaste.queue) RETURNS bigint LANGUAGE sql AS $f$
  SELECT greatest(1, ceil((f.o_full - f.o_now - f.o_step * (q.burst - 1)) / 1000))::bigint FROM posthaste.full_at(q) f
$f$;

-- Takes jobs out of the bucket.
CREATE FUNCTION posthaste.use_up(q posthaste.queue, p_jobs bigint) RETURNS void LANGUAGE sql AS $f$
  SELECT setval(q.pace, ceil(f.o_full + f.o_step * p_jobs)::bigint) FROM posthaste.full_at(q) f
$f$;

-- From the commit of this on, workers claim at most so many jobs of the queue in such a time, all workers together; after a lull up to burst at
-- once (as many as rate, unless said), and so from now on. NULL takes the limit away. It runs with its owner's rights, because each such queue has a cell of its own;
-- a cell that is none of those it made is not moved by these rights: workers may write into posthaste.queue.
CREATE FUNCTION posthaste.limit_rate(queue text, rate integer, per interval DEFAULT '1 second', burst integer DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_cell text;
BEGIN
  IF rate < 1 OR burst < 1 OR per <= interval '0' OR per > interval '1 year' OR per IS NULL THEN
    RAISE EXCEPTION 'posthaste: rate and burst must be at least 1, per more than 0 and at most a year' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO posthaste.queue AS q (name, rate, per, burst) VALUES (queue, rate, CASE WHEN rate IS NOT NULL THEN per END, coalesce(burst, rate))
  ON CONFLICT (name) DO UPDATE SET rate = excluded.rate, per = excluded.per, burst = excluded.burst;
  IF NOT EXISTS (SELECT FROM posthaste.queue q JOIN pg_class c ON c.oid = q.pace
                  WHERE q.name = queue AND c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'S' AND c.relname ~ '^pace_[0-9]+$') THEN
    v_cell := 'posthaste.pace_' || nextval('posthaste.paces');
    EXECUTE format('CREATE SEQUENCE %s MINVALUE 0 START 0', v_cell);
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'posthaste_worker') THEN
      EXECUTE format('GRANT SELECT, UPDATE ON SEQUENCE %s TO posthaste_worker', v_cell);
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'posthaste_observer') THEN
      EXECUTE format('GRANT SELECT ON SEQUENCE %s TO posthaste_observer', v_cell);
    END IF;
    UPDATE posthaste.queue q SET pace = v_cell::regclass WHERE q.name = queue;
  END IF;
  PERFORM setval(q.pace, 0) FROM posthaste.queue q WHERE q.name = queue;
END $f$;
REVOKE EXECUTE ON FUNCTION posthaste.limit_rate(text, integer, interval, integer) FROM PUBLIC;

CALL posthaste.each_slot(0, 5, $sql$
-- Those of these jobs that wait in this slot, with their lanes.
CREATE FUNCTION posthaste.waiting_in_@k@(p_ids bigint[]) RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_@k@ r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_@k@ n WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)  -- ends of turns have numbers too
     AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;

-- Those of these jobs that a worker has now.
CREATE FUNCTION posthaste.running_among_@k@(p_ids bigint[]) RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_@k@() r WHERE r.id = ANY (p_ids)
$f$
$sql$);

CALL posthaste.each_slot(6, 7, $sql$
-- The promoter is kept waiting only where something was found. Returns those that may lie there still, because somebody has its lock and is not waited for.
CREATE FUNCTION posthaste.cancel_parked_@k@(p_ids bigint[], p_waits boolean) RETURNS bigint[] LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(SELECT r.ctid FROM posthaste.parked_@k@ r WHERE r.id = ANY (p_ids));
BEGIN
  IF cardinality(v_found) > 0 THEN
    IF p_waits THEN
      PERFORM pg_advisory_xact_lock(1885893476, 2);
    ELSIF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
      RETURN ARRAY(SELECT r.id FROM posthaste.parked_@k@ r WHERE r.ctid = ANY (v_found));
    END IF;
    PERFORM posthaste.close_parked_@k@(v_found, 'cancelled');
  END IF;
  RETURN '{}';
END $f$
$sql$);

-- Those of these jobs that a worker has now, or that lie in posthaste.held still.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.in_hands(p_ids bigint[]) RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT * FROM posthaste.running_among_@k@(p_ids) UNION ALL
  SELECT h.id FROM posthaste.held h WHERE h.id = ANY (p_ids)
$f$
$sql$);

-- Cancels jobs: those that wait are kept as cancelled and never run; of those that run, their workers are told. Answers for each job that is
-- not done: 'cancelled', 'running' (it is being cancelled), or how it had ended before; 'claimable' says that it still waits, and is to be named once more:
-- each lane costs a lock, so one call cancels in a hundred lanes, twice. One transaction of its own, READ COMMITTED, because what it locks (lanes, and
-- the promoter) keeps others waiting until it ends.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.cancel_many(ids bigint[]) RETURNS TABLE (id bigint, state text) LANGUAGE plpgsql SET jit = off AS $f$
#variable_conflict use_column
DECLARE
  v_left bigint[] := ids;
  v_slots integer[];     -- where some of them wait, in the first hundred lanes
  v_queues text[];
  v_priorities integer[];
  v_parked bigint[];
  v_waiting bigint[];    -- those that waited at the last look, wherever
  v_lane record;
BEGIN
  PERFORM posthaste.require_home();
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: cancel needs READ COMMITTED, not %', current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  -- A job that moves from one place to another between two looks is met at the second try. Only the first waits for locks, the promoter's and then lanes in
  -- the order in which claims take them: the second, which has some, would wait for them in another order.
  FOR v_try IN 1 .. 2 LOOP
    -- One that is just being confirmed, or handed out, is not waited for.
    WITH free AS (
      SELECT h.id FROM posthaste.held h WHERE h.id = ANY (v_left) AND h.state IN ('awaiting', 'suspect') FOR UPDATE SKIP LOCKED),
    gone AS (
      DELETE FROM posthaste.held h USING free WHERE h.id = free.id RETURNING posthaste.let_go(h) AS job)
    INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_keep(gone.job, 'cancelled') d ON CONFLICT DO NOTHING;
    v_parked := posthaste.cancel_parked_6(v_left, v_try = 1) || posthaste.cancel_parked_7(v_left, v_try = 1);
    SELECT array_agg(w.slot) FILTER (WHERE w.lane <= 100), array_agg(w.queue) FILTER (WHERE w.lane <= 100),
           array_agg(w.priority) FILTER (WHERE w.lane <= 100), v_parked || array_agg(w.id)
      INTO v_slots, v_queues, v_priorities, v_waiting
      FROM (SELECT a.*, dense_rank() OVER (ORDER BY a.queue, a.priority) AS lane FROM (
        SELECT @k@ AS slot, w.* FROM posthaste.waiting_in_@k@(v_left) w UNION ALL
        SELECT 0, 0, '', 0 WHERE false) a) w;
    IF v_try = 1 THEN
      FOR v_lane IN SELECT DISTINCT o.queue COLLATE "C", o.priority FROM unnest(v_queues, v_priorities) o(queue, priority) ORDER BY 1, 2 LOOP
        PERFORM posthaste.hold_lane(v_lane.queue, v_lane.priority);
      END LOOP;
    END IF;
    PERFORM posthaste.close_early_@k@(o.queue, o.priority, NULL, v_left) FROM (SELECT DISTINCT u.queue, u.priority FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority) WHERE u.slot = @k@) o;
    INSERT INTO posthaste.cancelling (id) SELECT r FROM posthaste.in_hands(v_left) r ORDER BY r ON CONFLICT DO NOTHING;
    v_left := ARRAY(SELECT u FROM unnest(v_left) u
                     WHERE NOT EXISTS (SELECT FROM posthaste.dead d WHERE d.id = u) AND u NOT IN (SELECT r FROM posthaste.in_hands(v_left) r));
    EXIT WHEN cardinality(v_left) = 0;
  END LOOP;
  -- Ended, also while this call had seen it running. Nowhere to be found for a while: done. A shorter while may be a move that was missed twice.
  DELETE FROM posthaste.cancelling c
   WHERE c.id = ANY (ids) AND (EXISTS (SELECT FROM posthaste.dead d WHERE d.id = c.id)
                               OR (c.id = ANY (v_left) AND c.id <> ALL (v_waiting) AND c.asked_at < clock_timestamp() - interval '10 s'));
  RETURN QUERY
    SELECT u.id, coalesce(d.state, CASE WHEN c.id IS NULL THEN 'claimable' ELSE 'running' END)
      FROM (SELECT DISTINCT i FROM unnest(ids) i) u(id) LEFT JOIN posthaste.dead d ON d.id = u.id LEFT JOIN posthaste.cancelling c ON c.id = u.id
     WHERE d.id IS NOT NULL OR c.id IS NOT NULL OR u.id = ANY (v_waiting);
END $f$
$sql$);

-- The leader's part: whoever was running when it was cancelled, and was given back or is to be tried again, is met where it waits. What runs
-- on is left alone.
CREATE FUNCTION posthaste.cancel_again() RETURNS bigint LANGUAGE plpgsql SET jit = off AS $f$
DECLARE
  v_ids bigint[] := ARRAY(SELECT id FROM posthaste.cancelling ORDER BY asked_at LIMIT 1000);
BEGIN
  IF cardinality(v_ids) > 0 THEN
    v_ids := ARRAY(SELECT u FROM unnest(v_ids) u WHERE u NOT IN (SELECT r FROM posthaste.in_hands(v_ids) r)
                    UNION ALL SELECT h.id FROM posthaste.held h WHERE h.id = ANY (v_ids) AND h.state <> 'running');
  END IF;
  IF cardinality(v_ids) = 0 OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM posthaste.cancel_many(v_ids) c WHERE c.state <> 'running');
END $f$;

CREATE FUNCTION posthaste.cancel(job_id bigint) RETURNS text LANGUAGE sql AS $f$
  SELECT c.state FROM posthaste.cancel_many(ARRAY[job_id]) c
$f$;

-- Out of posthaste.dead: as if enqueued anew under the same id, with all its attempts before it, at the end of its line.
CREATE FUNCTION posthaste.revived(d posthaste.dead, slot smallint) RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT pg_current_xact_id(), d.id, d.enqueued_at, clock_timestamp(), greatest(d.expires_at, clock_timestamp() + interval '30 days'),
         CASE WHEN d.ordering_key IS NULL THEN d.priority ELSE 0 END, 0, d.max_attempts, d.kwargs_bytes, slot, 0::smallint,
         CASE WHEN d.ordering_key IS NULL THEN d.queue ELSE '' END, d.name, d.tag, d.unique_key, d.ordering_key, NULL::bigint,
         CASE WHEN d.ordering_key IS NOT NULL THEN d.queue END, CASE WHEN d.ordering_key IS NOT NULL THEN d.priority END, d.last_error, d.kwargs
$f$;

-- Sends kept jobs to work again, the oldest first, in the caller's transaction, and returns their ids. All conditions that are not NULL must
-- hold; error is a pattern of LIKE. A job whose unique key another job holds by now stays where it is.
CREATE FUNCTION posthaste.redrive(ids bigint[] DEFAULT NULL, queue text DEFAULT NULL, name text DEFAULT NULL, tag text DEFAULT NULL,
                                  state text DEFAULT NULL, error text DEFAULT NULL, at_most integer DEFAULT 1000)
RETURNS SETOF bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
BEGIN
  PERFORM posthaste.require_home();
  RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT d.id, d.unique_key FROM posthaste.dead d
       WHERE (ids IS NULL OR d.id = ANY (ids)) AND (queue IS NULL OR d.queue = queue) AND (name IS NULL OR d.name = name)
         AND (tag IS NULL OR d.tag = tag) AND (state IS NULL OR d.state = state) AND (error IS NULL OR d.last_error LIKE error)
         AND NOT EXISTS (SELECT FROM posthaste.unique_key u WHERE u.key = d.unique_key)
       ORDER BY d.died_at, d.id LIMIT at_most FOR UPDATE SKIP LOCKED),
    keyed AS (
      INSERT INTO posthaste.unique_key AS u (key, id) SELECT f.unique_key, f.id FROM found f WHERE f.unique_key IS NOT NULL
       ORDER BY f.unique_key COLLATE "C"
      ON CONFLICT DO NOTHING RETURNING u.id),
    risen AS (
      DELETE FROM posthaste.dead d USING found f
       WHERE d.id = f.id AND (f.unique_key IS NULL OR f.id IN (SELECT k.id FROM keyed k)) RETURNING d AS job),
    unmarked AS (DELETE FROM posthaste.cancelling c USING risen r WHERE c.id = (r.job).id),
    sent AS (
      INSERT INTO posthaste.store SELECT s.* FROM risen r, LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.ring_for(
               CASE WHEN (r.job).ordering_key IS NULL THEN (r.job).queue ELSE '' END, (SELECT posthaste.bell())) AS slot OFFSET 0) e, posthaste.revived(r.job, e.slot) s
      RETURNING store.id)
    SELECT sent.id FROM sent;
END $f$;
