-- Claim: which jobs a worker gets next, decided by a cursor that no dead or spent row can slow down.
--
-- Each lane (queue, priority) of a slot is read in windows. A window is the set of rows that are visible in snapshot hi and were not
-- visible in snapshot lo, the hi of the window before it. Snapshots of a lane only grow, so each committed row falls into exactly one
-- window, however late its transaction commits. Inside a window rows are taken in the order (xid, id), a batch at a time; the batch's claim
-- row records how far it went, and is the lane's next cursor.

CREATE TYPE posthaste.claimed AS (
  slot smallint, batch bigint, id bigint, enqueued_at timestamptz, scheduled_at timestamptz, expires_at timestamptz,
  priority integer, attempt integer, max_attempts integer, crashes smallint, name text, tag text, unique_key text, ordering_key text, kwargs jsonb
);

-- A lane's advisory lock: serialises its claimers. A hash collision only makes two lanes wait for each other.
CREATE FUNCTION posthaste.lane_key(queue text, priority integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT hashtext(queue || ' ' || priority)
$f$;

-- Waits for the lane and keeps it. What is read afterwards is read in a statement of its own: the cursor may have moved meanwhile.
CREATE FUNCTION posthaste.hold_lane(queue text, priority integer) RETURNS void LANGUAGE sql AS $f$
  SELECT pg_advisory_xact_lock(1885893475, posthaste.lane_key(queue, priority))
$f$;

-- The snapshot that a cursor keeps: the current one, in which our own transaction counts as running. Postgres leaves the own xid out of a
-- snapshot's list, so that rows which this transaction writes later would seem to lie before the window that comes next.
CREATE FUNCTION posthaste.cursor_snapshot() RETURNS pg_snapshot LANGUAGE plpgsql AS $f$
DECLARE
  s pg_snapshot := pg_current_snapshot();
  own xid8 := pg_current_xact_id_if_assigned();
BEGIN
  IF own IS NULL OR own >= pg_snapshot_xmax(s) THEN
    RETURN s;
  END IF;
  RETURN (least(own, pg_snapshot_xmin(s)) || ':' || pg_snapshot_xmax(s) || ':'
          || array_to_string(ARRAY(SELECT x FROM (SELECT own AS x UNION SELECT pg_snapshot_xip(s)) u ORDER BY x), ','))::pg_snapshot;
END $f$;

-- Which rows of a lane are to be claimed next: those that are visible in hi and were not visible in lo, after the row (at_xid, at_id).
CREATE TYPE posthaste.lane_window AS (
  batch    bigint,       -- the newest claim row of the lane, which this was read from; 0 when there is none
  lo       pg_snapshot,
  hi       pg_snapshot,
  at_xid   xid8,
  at_id    bigint,
  from_xid xid8,         -- lower bound of the range part; one only: with two, btree starts at the lower one and walks all spent rows
  from_id  bigint,
  late     xid8[],       -- transactions that ran when lo was taken and have ended since: looked up one by one
  is_fresh boolean       -- nothing of it was claimed: it reaches up to now
);

-- A window with its bounds.
CREATE FUNCTION posthaste.bounded(w posthaste.lane_window) RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  IF w.at_xid >= pg_snapshot_xmax(w.lo) THEN
    w.from_xid := w.at_xid; w.from_id := w.at_id;
  ELSE
    w.from_xid := pg_snapshot_xmax(w.lo); w.from_id := -1;
  END IF;
  IF pg_snapshot_xmin(w.lo) = pg_snapshot_xmax(w.lo) THEN
    w.late := '{}';  -- nobody was running
  ELSE
    w.late := ARRAY(SELECT p FROM pg_snapshot_xip(w.lo) p
                     WHERE p >= w.at_xid AND pg_visible_in_snapshot(p, w.hi) AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  END IF;
  RETURN w;
END $f$;

-- The window behind this one, up to now.
CREATE FUNCTION posthaste.next_window(w posthaste.lane_window, p_now pg_snapshot) RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  w.lo := w.hi; w.hi := p_now; w.at_xid := '0'; w.at_id := 0; w.is_fresh := true;
  RETURN posthaste.bounded(w);
END $f$;

CALL posthaste.each_slot(0, 5, $sql$

-- The window that the lane's cursor stands in, or the next one when that is exhausted. Who holds the lane says what is now. For others it is what
-- is after the cursor was read: one that was moved meanwhile would lie behind its own window's end, and what comes after that be claimed again.
CREATE FUNCTION posthaste.window_@k@(p_queue text, p_priority integer, p_now pg_snapshot) RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  v_exhausted boolean;
BEGIN
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid, w.at_id, v_exhausted
    FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.bounded(w);
END $f$;

-- Is anything in this window?
CREATE FUNCTION posthaste.look_@k@(p_queue text, p_priority integer, w posthaste.lane_window) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_@k@ r
              WHERE r.queue = p_queue AND r.priority = p_priority AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_@k@ r WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;

-- How far a batch reaches: its last row, its rows, their bytes, and whether some have expired. Only what decides that is read of each row:
-- the jobs themselves are read once, by whoever hands them out. With p_expired it ends before the first job that has not expired.
CREATE FUNCTION posthaste.reach_@k@(p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
                                    p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint, OUT o_mixed boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
BEGIN
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() FROM posthaste.ready_@k@ r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() FROM posthaste.ready_@k@ r
        WHERE r.queue = p_queue AND r.priority = p_priority AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
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

-- A look without a lock: has the lane anything here that was not claimed?
CREATE FUNCTION posthaste.sees_@k@(p_queue text, p_priority integer, p_worker bigint) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_@k@(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.look_@k@(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If finding out that nothing is there was slow (rows of an open or rolled-back bulk insert lie there), the lane's cursor is moved
      -- past them, so that the next look does not walk them again.
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_@k@(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;

-- Claims up to p_limit jobs and p_bytes of arguments (but at least one job) of one lane of this slot, of what was there at p_now, and returns the
-- batch; NULL when there is none. The caller holds the lane, since before p_now. A job that has expired is closed here and kept as expired; with
-- p_expired only such jobs are taken, up to the first that has not. o_mixed tells that some of the batch are closed already: those are not to be
-- handed out, and there may be nothing else in it. o_last tells that nothing is left of the lane here. It is not so where the batch ended before it,
-- or was in the window of an earlier claim: what came since lies in the next one, and comes before what any newer slot has.
CREATE FUNCTION posthaste.claim_@k@(p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
                                    p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
                                    OUT o_mixed boolean, OUT o_last boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_@k@(p_queue, p_priority, p_now);
  v_reach record;
BEGIN
  LOOP
    v_reach := posthaste.reach_@k@(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_reach.o_n > 0;
    IF w.is_fresh OR v_reach.o_xid IS NOT NULL THEN  -- nothing is left, or what is left has not expired
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_reach.o_n; o_bytes := v_reach.o_bytes; o_mixed := v_reach.o_mixed;
  INSERT INTO posthaste.claim_@k@ (batch, worker, queue, priority, token, lo, hi, from_xid, from_id, to_xid, to_id, n, exhausted)
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi, w.at_xid, w.at_id, v_reach.o_xid, v_reach.o_id, o_n,
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.early_@k@) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.early_@k@ e JOIN posthaste.batch_rows_@k@(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_@k@(o_batch, p_token);
  END IF;
END $f$;

-- Closes the jobs of a batch that expired before it was claimed; the batch is to be closed job by job from now on.
CREATE FUNCTION posthaste.expire_claimed_@k@(p_batch bigint, p_token uuid) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.split_@k@ (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_@k@(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.ack_@k@ (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_keep(gone, 'expired') d ON CONFLICT (id) DO NOTHING;
END $f$;

-- Moves a lane's cursor over a window that holds nothing.
CREATE FUNCTION posthaste.skip_@k@(p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window) RETURNS void
LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF w.batch = (SELECT n.batch FROM posthaste.window_@k@(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_@k@ (batch, worker, queue, priority, token, lo, hi, from_xid, from_id, to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo, w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;

-- The first priority of a queue, above p_above, that this slot has jobs of.
CREATE FUNCTION posthaste.next_priority_@k@(p_queue text, p_above bigint, p_below bigint) RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_@k@ r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below ORDER BY r.queue, r.priority LIMIT 1
$f$;

-- The jobs of a batch as they are handed out, without those that are closed already when it is mixed.
CREATE FUNCTION posthaste.handed_out_@k@(p_batch bigint, p_token uuid, p_mixed boolean) RETURNS SETOF posthaste.claimed
LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt, r.max_attempts, r.crashes,
         r.name, r.tag, r.unique_key, r.ordering_key, r.kwargs
    FROM posthaste.batch_rows_@k@(p_batch, p_token) r
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)
$f$
$sql$);

-- Slots that may hold undispatched jobs, oldest first. What lies aside is older than the ring; of two aside generations the newer one has
-- the older jobs, because compaction moves a lane's oldest jobs first.
CREATE FUNCTION posthaste.scan_slots() RETURNS integer[] LANGUAGE sql STABLE AS $f$
  SELECT ARRAY(SELECT (4 + g % 2)::integer
                 FROM generate_series(pg_sequence_last_value('posthaste.aside_scan'::regclass),
                                      pg_sequence_last_value('posthaste.aside_current'::regclass)) g ORDER BY g DESC)
      || ARRAY(SELECT (g % 4)::integer
                 FROM generate_series(pg_sequence_last_value('posthaste.ready_scan'::regclass),
                                      pg_sequence_last_value('posthaste.ready_current'::regclass)) g ORDER BY g)
$f$;

-- A look without a lock: has the lane anything that was not claimed?
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.sees(p_queue text, p_priority integer, p_worker bigint) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    CASE v_slot
      WHEN @k@ THEN IF posthaste.sees_@k@(p_queue, p_priority, p_worker) THEN RETURN true; END IF;
    END CASE;
  END LOOP;
  RETURN false;
END $f$
$sql$);

-- Claims up to p_limit jobs and about p_bytes of arguments of a queue, lanes in the order of p_priorities (strict priority: lower first).
-- The jobs belong to p_worker under the fence (slot, batch, p_token) until they are acknowledged or the worker is found dead. Must run READ
-- COMMITTED: the cursor has to be read with a snapshot taken after the lane lock. The transaction's commit becomes asynchronous: a claim
-- that a crash forgets only hands its jobs out again, and an acknowledgement that reached the disk took its claim with it.
--
-- Behind a batch that had expired as a whole the lane goes on, expired jobs by the thousand, until 5,000 were closed or 50 ms are over; behind one
-- of which a part had expired, or that ended the window of an earlier claim, as long as there is room: a newer slot must not come before it.
-- Then the claim leaves with what it has, and a row without an id comes last: it is to be followed by another after so many milliseconds as are said
-- in place of the batch, here 0. A claim that a queue's rate stops says so too.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.claim(p_queue text, p_priorities integer[], p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint)
RETURNS SETOF posthaste.claimed LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_started timestamptz;
  v_priority integer;
  v_slot integer;
  v_now pg_snapshot;
  b record;           -- the batch
  v_rows bigint;
  v_expired boolean;  -- the lane goes on behind a batch that had expired
  v_closed bigint := 0;
  v_left integer := p_limit;
  v_queue posthaste.queue;
  v_bytes bigint := p_bytes;
  v_most integer;     -- what the next batch may have
  v_more posthaste.claimed;
  v_size bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: claim needs READ COMMITTED, not %', current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.worker WHERE id = p_worker AND stopped_at IS NULL AND home = posthaste.whereabouts()) THEN
    RAISE EXCEPTION 'posthaste: worker % is not registered here or was declared dead', p_worker USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  SELECT * INTO v_queue FROM posthaste.queue q WHERE q.name = p_queue;
  IF v_queue.paused_at IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  IF v_queue.rate IS NOT NULL THEN
    v_left := least(v_left, posthaste.allowance(v_queue));
    IF v_left = 0 THEN
      v_more.batch := posthaste.until_next(v_queue);
      RETURN NEXT v_more;
      RETURN;
    END IF;
  END IF;
  FOREACH v_priority IN ARRAY p_priorities LOOP
    CONTINUE WHEN NOT posthaste.sees(p_queue, v_priority, p_worker);
    -- From here on nobody moves a job of the lane, and all slots are read as of one moment: what is committed into two generations between two looks
    -- would be found in the newer one first.
    PERFORM posthaste.hold_lane(p_queue, v_priority);
    v_now := posthaste.cursor_snapshot();
    FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
      v_expired := false; v_most := v_left; v_size := v_bytes;
      LOOP
        CASE v_slot
          WHEN @k@ THEN b := posthaste.claim_@k@(p_queue, v_priority, p_worker, p_token, v_most, v_size, v_expired, v_now);
        END CASE;
        IF b.o_batch IS NULL THEN
          EXIT WHEN NOT v_expired;
          v_expired := false; v_most := v_left; v_size := v_bytes;
          CONTINUE;
        END IF;
        CASE v_slot
          WHEN @k@ THEN RETURN QUERY SELECT * FROM posthaste.handed_out_@k@(b.o_batch, p_token, b.o_mixed) h;
        END CASE;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        IF v_rows > 0 THEN
          v_left := v_left - v_rows;
          IF v_queue.rate IS NOT NULL THEN
            PERFORM posthaste.use_up(v_queue, v_rows);
          END IF;
          v_bytes := v_bytes - b.o_bytes;
          EXIT WHEN b.o_last OR v_left <= 0 OR v_bytes <= 0;
        END IF;
        v_started := coalesce(v_started, clock_timestamp());
        v_closed := v_closed + b.o_n - v_rows;
        IF v_closed >= 5000 OR clock_timestamp() - v_started > interval '50 ms' THEN
          v_more.batch := 0;
          RETURN NEXT v_more;
          RETURN;
        END IF;
        v_expired := v_rows = 0;
        IF v_expired THEN
          v_most := 1000; v_size := 67108864;
        ELSE
          v_most := v_left; v_size := v_bytes;
        END IF;
      END LOOP;
      IF v_left <= 0 OR v_bytes <= 0 THEN
        RETURN;
      END IF;
    END LOOP;
  END LOOP;
END $f$
$sql$);

-- Priorities of a queue that have jobs but are not among the known ones: one index probe per gap between known lanes and slot, so that
-- rows of known lanes are never walked.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.discover(p_queue text, p_known integer[]) RETURNS SETOF integer LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_bounds bigint[] := ARRAY[-2147483649] || ARRAY(SELECT DISTINCT p::bigint FROM unnest(p_known) p ORDER BY 1) || ARRAY[2147483648];
  v_slot integer;
  v_found integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    FOR i IN 1 .. cardinality(v_bounds) - 1 LOOP
      CONTINUE WHEN v_bounds[i] + 1 = v_bounds[i + 1];
      CASE v_slot
        WHEN @k@ THEN v_found := posthaste.next_priority_@k@(p_queue, v_bounds[i], v_bounds[i + 1]);
      END CASE;
      IF v_found IS NOT NULL THEN
        RETURN NEXT v_found;
        RETURN;  -- a find is told at once: what lies behind it may be slow to walk
      END IF;
    END LOOP;
  END LOOP;
END $f$
$sql$);
