-- Claim: which jobs a worker gets next, decided by a cursor that no dead or spent row can slow down.
--
-- Each lane (queue, priority) of a slot is read in windows. A window is the set of rows that are visible in snapshot hi and were not visible in
-- snapshot lo, the hi of the window before it. Snapshots of a lane only grow, so each committed row falls into exactly one window, however
-- late its transaction commits. Inside a window rows are taken in the order (xid, id), a batch at a time; the batch's claim row records
-- how far it went, and is the lane's next cursor.

CREATE TYPE posthaste.claimed AS (
  slot smallint, batch bigint, id bigint, enqueued_at timestamptz, scheduled_at timestamptz, expires_at timestamptz,
  priority integer, attempt integer, max_attempts integer, crashes smallint, name text, tag text, unique_key text, kwargs jsonb
);

-- A lane's advisory lock: serialises its claimers. A hash collision only makes two lanes wait for each other.
CREATE FUNCTION posthaste.lane_key(queue text, priority integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT hashtext(queue || ' ' || priority)
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

DO $do$
BEGIN
  FOR k IN 0..5 LOOP
    EXECUTE replace($sql$

-- Claims up to p_limit jobs and p_bytes of arguments (but at least one job) of one lane of this slot and returns the batch; NULL when there is none.
-- A job that has expired is closed here and kept as expired. o_mixed tells that some of the batch are closed already: those are not to be
-- handed out, and there may be nothing else in it.
CREATE FUNCTION posthaste.claim_@k@(p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
                                    OUT o_batch bigint, OUT o_bytes bigint, OUT o_mixed boolean) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_cursor bigint;            -- newest claim row seen, and the one seen before it
  v_before bigint;
  v_lo pg_snapshot;
  v_hi pg_snapshot;
  v_at_xid xid8;
  v_at_id bigint;
  v_exhausted boolean;
  v_from_xid xid8;            -- one lower bound for the range part: two bounds let btree start at the lower one and walk all spent rows
  v_from_id bigint;
  v_end xid8;
  v_late xid8[];              -- transactions that ran when lo was taken and have ended since: looked up one by one
  v_early boolean;
  v_locked boolean := false;
  v_fresh boolean;
  v_found boolean;
  v_xid xid8;                 -- the batch: its last row, its rows, their bytes
  v_id bigint;
  v_n integer := 0;
  v_size bigint;
  v_expired boolean;
  v_started timestamptz := clock_timestamp();
BEGIN
  LOOP
    SELECT batch, lo, hi, to_xid, to_id, exhausted INTO v_cursor, v_lo, v_hi, v_at_xid, v_at_id, v_exhausted
      FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
    IF NOT FOUND THEN
      v_cursor := 0; v_hi := '1:1:'; v_exhausted := true;
    END IF;
    IF v_before = v_cursor THEN     -- the statement below ran on this cursor and found nothing in its window
      EXIT WHEN v_fresh;
      v_exhausted := true;
    END IF;
    LOOP
      IF v_exhausted THEN
        v_lo := v_hi; v_hi := posthaste.cursor_snapshot(); v_at_xid := '0'; v_at_id := 0;
      END IF;
      v_end := pg_snapshot_xmax(v_hi);
      IF v_at_xid >= pg_snapshot_xmax(v_lo) THEN
        v_from_xid := v_at_xid; v_from_id := v_at_id;
      ELSE
        v_from_xid := pg_snapshot_xmax(v_lo); v_from_id := -1;
      END IF;
      v_late := ARRAY(SELECT p FROM pg_snapshot_xip(v_lo) p
                       WHERE p >= v_at_xid AND pg_visible_in_snapshot(p, v_hi) AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
      EXIT WHEN v_locked;
      -- A look without the lock: is anything there?
      v_found := EXISTS (SELECT FROM posthaste.ready_@k@ r
                          WHERE r.queue = p_queue AND r.priority = p_priority AND (r.xid, r.id) > (v_from_xid, v_from_id) AND r.xid < v_end
                            AND pg_visible_in_snapshot(r.xid, v_hi));
      IF NOT v_found AND cardinality(v_late) > 0 THEN
        v_found := EXISTS (SELECT FROM unnest(v_late) p, LATERAL (
          SELECT FROM posthaste.ready_@k@ r WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = v_at_xid THEN v_at_id ELSE -1 END LIMIT 1) late);
      END IF;
      EXIT WHEN v_found;
      IF v_exhausted THEN
        -- A fresh window is empty. If finding that out was slow (rows of an open or rolled-back bulk insert lie in it), the lane's cursor
        -- is moved past them, so that the next look does not walk them again.
        IF clock_timestamp() - v_started > interval '2 ms' THEN
          PERFORM posthaste.skip_@k@(p_queue, p_priority, p_worker, v_cursor, v_lo, v_hi);
        END IF;
        RETURN;
      END IF;
      v_exhausted := true;  -- this window is finished, look at a fresh one
    END LOOP;
    IF NOT v_locked THEN
      -- Serialise the lane's claimers, then read the cursor again: it may have moved while we waited.
      PERFORM pg_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority));
      v_locked := true;
      v_early := EXISTS (SELECT FROM posthaste.early_@k@);
      CONTINUE;
    END IF;
    v_before := v_cursor;
    v_fresh := v_exhausted;
    -- How far the batch reaches. Only what decides that is read of each row: the jobs themselves are read once, by whoever hands them out.
    o_mixed := false;
    o_bytes := 0;
    FOR v_xid, v_id, v_size, v_expired IN
      SELECT * FROM (
        SELECT late.* FROM unnest(v_late) p, LATERAL (
          SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() FROM posthaste.ready_@k@ r WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = v_at_xid THEN v_at_id ELSE -1 END ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
        UNION ALL
        (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() FROM posthaste.ready_@k@ r
          WHERE r.queue = p_queue AND r.priority = p_priority AND (r.xid, r.id) > (v_from_xid, v_from_id) AND r.xid < v_end
            AND pg_visible_in_snapshot(r.xid, v_hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
      ) both_parts ORDER BY xid, id LIMIT p_limit
    LOOP
      v_n := v_n + 1;
      o_bytes := o_bytes + v_size;
      o_mixed := o_mixed OR v_expired;
      EXIT WHEN o_bytes >= p_bytes;
    END LOOP;
    IF v_n > 0 THEN
      INSERT INTO posthaste.claim_@k@ (batch, worker, queue, priority, token, lo, hi, from_xid, from_id, to_xid, to_id, n, exhausted)
      VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, v_lo, v_hi, v_at_xid, v_at_id, v_xid, v_id, v_n,
              v_n < p_limit AND o_bytes < p_bytes)
      RETURNING batch INTO o_batch;
      IF v_early AND NOT o_mixed THEN
        o_mixed := EXISTS (SELECT FROM posthaste.early_@k@ e JOIN posthaste.batch_rows_@k@(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
      END IF;
      IF o_mixed THEN
        PERFORM posthaste.expire_claimed_@k@(o_batch, p_token);
      END IF;
      RETURN;
    END IF;
    -- The window is empty: open the next.
  END LOOP;
END $f$;

-- Closes the jobs of a batch that expired before it was claimed; the batch is to be closed job by job from now on.
CREATE FUNCTION posthaste.expire_claimed_@k@(p_batch bigint, p_token uuid) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.split_@k@ (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_@k@(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.ack_@k@ (xid, id, outcome) SELECT xid, id, 3 FROM gone),
  freed AS (DELETE FROM posthaste.unique_key u USING gone g WHERE u.key = g.unique_key AND u.id = g.id)
  INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
  SELECT id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, 'expired', queue, name, tag, unique_key, last_error, kwargs
    FROM gone ON CONFLICT (id) DO NOTHING;
END $f$;

-- Moves a lane's cursor over a window that holds nothing.
CREATE FUNCTION posthaste.skip_@k@(p_queue text, p_priority integer, p_worker bigint, p_cursor bigint, p_lo pg_snapshot, p_hi pg_snapshot)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF p_cursor = coalesce((SELECT batch FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1), 0) THEN
    INSERT INTO posthaste.claim_@k@ (batch, worker, queue, priority, token, lo, hi, from_xid, from_id, to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), p_lo, p_hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;

-- The first priority of a queue, above p_above, that this slot has jobs of.
CREATE FUNCTION posthaste.next_priority_@k@(p_queue text, p_above bigint, p_below bigint) RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_@k@ r WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below ORDER BY r.queue, r.priority LIMIT 1
$f$
$sql$, '@k@', k::text);
  END LOOP;
END $do$;

-- Slots that may hold undispatched jobs, oldest first. What lies aside is older than the ring; of two aside generations the newer one has
-- the older jobs, because compaction moves a lane's oldest jobs first.
CREATE FUNCTION posthaste.scan_slots() RETURNS integer[] LANGUAGE sql STABLE AS $f$
  SELECT ARRAY(SELECT (4 + g % 2)::integer FROM generate_series(pg_sequence_last_value('posthaste.aside_scan'::regclass), pg_sequence_last_value('posthaste.aside_current'::regclass)) g ORDER BY g DESC)
      || ARRAY(SELECT (g % 4)::integer FROM generate_series(pg_sequence_last_value('posthaste.ready_scan'::regclass), pg_sequence_last_value('posthaste.ready_current'::regclass)) g ORDER BY g)
$f$;

-- Claims up to p_limit jobs and about p_bytes of arguments of a queue, lanes in the order of p_priorities (strict priority: lower first).
-- The jobs belong to p_worker under the fence (slot, batch, p_token) until they are acknowledged or the worker is found dead.
-- Must run READ COMMITTED: the cursor has to be read with a snapshot taken after the lane lock. The commit is asynchronous: a claim that a
-- crash forgets only hands its jobs out again, and an acknowledgement that reached the disk took its claim with it.
DO $do$
BEGIN
  EXECUTE replace($sql$
CREATE FUNCTION posthaste.claim(p_queue text, p_priorities integer[], p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint)
RETURNS SETOF posthaste.claimed LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_slots integer[];
  v_priority integer;
  v_slot integer;
  v_batch bigint;
  v_taken bigint;
  v_mixed boolean;
  v_rows bigint;
  v_left integer := p_limit;
  v_bytes bigint := p_bytes;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: claim needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.worker WHERE id = p_worker AND stopped_at IS NULL) THEN
    RAISE EXCEPTION 'posthaste: worker % is not registered or was declared dead', p_worker USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  v_slots := posthaste.scan_slots();
  FOREACH v_priority IN ARRAY p_priorities LOOP
    FOREACH v_slot IN ARRAY v_slots LOOP
      LOOP
        CASE v_slot
@branches@
        END CASE;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        EXIT WHEN v_batch IS NULL OR v_rows > 0;  -- all of a batch had expired: the lane goes on behind it
      END LOOP;
      IF v_batch IS NOT NULL THEN
        v_left := v_left - v_rows;
        v_bytes := v_bytes - v_taken;
        IF v_left <= 0 OR v_bytes <= 0 THEN
          RETURN;
        END IF;
      END IF;
    END LOOP;
  END LOOP;
END $f$;
$sql$, '@branches@', (SELECT string_agg(replace($branch$          WHEN @k@ THEN
            SELECT o_batch, o_bytes, o_mixed INTO v_batch, v_taken, v_mixed FROM posthaste.claim_@k@(p_queue, v_priority, p_worker, p_token, v_left, v_bytes);
            IF v_batch IS NOT NULL THEN
              RETURN QUERY
                SELECT r.slot, v_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt, r.max_attempts, r.crashes,
                       r.name, r.tag, r.unique_key, r.kwargs
                  FROM posthaste.batch_rows_@k@(v_batch, p_token) r
                 WHERE NOT v_mixed OR NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id);
            END IF;$branch$, '@k@', k::text), E'\n' ORDER BY k) FROM generate_series(0, 5) k));
END $do$;

-- Priorities of a queue that have jobs but are not among the known ones: one index probe per gap between known lanes and slot, so that
-- rows of known lanes are never walked.
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
      v_found := CASE v_slot
        WHEN 0 THEN posthaste.next_priority_0(p_queue, v_bounds[i], v_bounds[i + 1])
        WHEN 1 THEN posthaste.next_priority_1(p_queue, v_bounds[i], v_bounds[i + 1])
        WHEN 2 THEN posthaste.next_priority_2(p_queue, v_bounds[i], v_bounds[i + 1])
        WHEN 3 THEN posthaste.next_priority_3(p_queue, v_bounds[i], v_bounds[i + 1])
        WHEN 4 THEN posthaste.next_priority_4(p_queue, v_bounds[i], v_bounds[i + 1])
        WHEN 5 THEN posthaste.next_priority_5(p_queue, v_bounds[i], v_bounds[i + 1])
      END;
      IF v_found IS NOT NULL THEN
        RETURN NEXT v_found;
        RETURN;  -- a find is told at once: what lies behind it may be slow to walk
      END IF;
    END LOOP;
  END LOOP;
END $f$;
