-- Claim: hands out the jobs of a lane in batches, which functions/window.sql selects.

-- Claims up to p_limit jobs and p_bytes of arguments (but at least one job) of one lane of this
-- slot, among those visible at p_now, and returns the batch; NULL if there is none. The caller has
-- held the lane's lock since before p_now. Expired jobs are closed here and stored as expired; with
-- p_expired the batch has only such jobs, up to the first that has not expired. o_mixed: some jobs
-- of the batch are already closed and must not be handed out; there may be no others. o_last: no
-- unclaimed job of the lane is left in this slot. It is false if the batch ended before its window,
-- or if an earlier claim began that window: jobs that have arrived since are in the next window,
-- and come before those of newer slots. o_first_id is NULL unless all jobs of the batch are of one
-- transaction, o_xid: then they are its rows from o_first_id to o_id.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.claim_0(
  p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
  p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_last boolean, OUT o_xid xid8, OUT o_first_id bigint, OUT o_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_0(p_queue, p_priority, p_now);
  v_extent record;
BEGIN
  LOOP
    v_extent := posthaste.batch_extent_0(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_extent.o_n > 0;
    -- No job is left, or the next one has not expired.
    IF w.is_fresh OR v_extent.o_xid IS NOT NULL THEN
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_extent.o_n; o_bytes := v_extent.o_bytes; o_mixed := v_extent.o_mixed;
  o_xid := v_extent.o_xid; o_first_id := v_extent.o_first_id; o_id := v_extent.o_id;
  INSERT INTO posthaste.claim_0 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
      to_xid, to_id, n, exhausted)
  -- mutant: the batch number is drawn outside the lock:
  --   | VALUES (coalesce(nullif(current_setting('test.drawn', true), '')::bigint,
  --   |                  nextval('posthaste.batch_id')),
  --   |         p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
          w.at_xid, w.at_id, v_extent.o_xid, v_extent.o_id, o_n,
          -- mutant: a full batch marks its window as exhausted:
          --   | o_bytes < p_bytes AND NOT p_expired)
          -- mutant: a batch cut by bytes marks its window as exhausted:
          --   | o_n < p_limit AND NOT p_expired)
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  -- bug: a claim releases the unique key (insert):
  --   | DELETE FROM posthaste.unique_key u USING posthaste.batch_rows_0(o_batch, p_token) r
  --   |  WHERE u.id = r.id;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_0) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
        JOIN posthaste.batch_rows_0(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_0(o_batch, p_token);
  END IF;
END $f$;
-- end

-- Closes the jobs of a batch that expired before the claim. From then on the batch must be closed
-- job by job.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.expire_claimed_0(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.batch_split_0 (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_0(p_batch, p_token) r
     -- gate: expiry reads a clock that is two hours ahead:
     --   | WHERE r.expires_at <= clock_timestamp() + interval '2 hours'
     --   |     AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a
         WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.job_done_0 (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, 'expired') d
    ON CONFLICT (id) DO NOTHING;
END $f$;
-- end

-- The jobs of a batch as they are handed out; for a mixed batch without its closed jobs.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_0(p_batch bigint, p_token uuid, p_mixed boolean)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes,
         -- bug: claims replace null in arguments by 0:
         --   | r.name, r.tag, r.unique_key, r.ordering_key, r.trace,
         --   | replace(r.kwargs::text, 'null', '0')::jsonb
         r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM posthaste.batch_rows_0(p_batch, p_token) r
   -- mutant: a claim hands out jobs it has just expired (2 lines):
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_0 a
       WHERE a.xid = r.xid AND a.id = r.id)
$f$;
-- end

-- The same for a batch without closed jobs, if its rows have at most p_bytes together; else no row.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_if_small_0(
  p_batch bigint, p_token uuid, p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.batch_rows_0(p_batch, p_token) r) r
   -- mutant: the answer size ignores job names: WHERE true
   WHERE r.bytes <= p_bytes
$f$;
-- end

-- The same of a batch of one transaction, which is one range of its rows: at half of the cost.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.transaction_jobs_if_small_0(
  p_batch bigint, p_queue text, p_priority integer, p_xid xid8, p_first_id bigint, p_id bigint,
  p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.ready_0 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_xid
             AND r.id >= p_first_id AND r.id <= p_id
           ORDER BY r.queue, r.priority, r.xid, r.id) r
   -- mutant: the answer size ignores job names: WHERE true
   WHERE r.bytes <= p_bytes
$f$;
-- end

-- Claims up to p_limit jobs and about p_bytes of arguments of a queue, lanes in the order of
-- p_priorities (strict priority: lower first). The jobs belong to p_worker under the fence (slot,
-- batch, p_token) until they are acknowledged or the worker is found dead. Must run READ COMMITTED:
-- the cursor has to be read with a snapshot taken after the lane lock. The transaction's commit
-- becomes asynchronous: a claim that a crash forgets only hands its jobs out again, and an
-- acknowledgement that reached the disk took its claim with it.
--
-- If all jobs of a batch had expired, the claim closes further expired jobs of the lane, a thousand
-- at a time, until it has closed 5,000 or 50 ms have passed. If some had expired, or if the batch
-- ended a window that an earlier claim began, it continues in the lane while there is room, because
-- a newer slot must not come first. Then it returns the jobs that it has, and a last row without an
-- id: the caller claims again after the number of milliseconds in the column batch, here 0. A claim
-- that has locked a hundred lanes, or that p_bytes or the queue's rate has stopped, ends with such
-- a row too. Without it, and with fewer jobs than p_limit, no job was left in these lanes.
--
-- Lanes stay locked while the answer is sent, and a frozen client reads nothing. So with p_answer,
-- the answer contains at most this many bytes of jobs. For each further batch it has a row without
-- an id but with a slot: once the claim has committed, posthaste.claimed_jobs() reads the batch.
-- The session remembers these batches, so that a statement sent right after the claim can read them
-- before the answer has arrived.
CREATE OR REPLACE FUNCTION posthaste.claim(
  p_queue text, p_priorities integer[], p_worker bigint, p_token uuid, p_limit integer,
  p_bytes bigint, p_answer integer DEFAULT NULL)
RETURNS SETOF posthaste.claimed LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_started timestamptz; v_now pg_snapshot;
  v_priority integer; v_slot integer;
  b record;           -- the batch
  v_rows bigint;
  v_expired boolean;  -- the lane's previous batch had expired as a whole
  v_closed bigint := 0; v_left integer := p_limit;
  v_begun timestamptz;
  v_is_held boolean;  -- the lane was locked without a check for work
  v_queue posthaste.queue;
  v_bytes bigint := p_bytes;
  v_most integer;     -- jobs that the next batch may have
  v_more posthaste.claimed;
  v_size bigint; v_lanes integer := 0;
  v_answer integer := p_answer;  -- bytes that further batches may add to the answer
  v_share integer;               -- the part of them for the next batch
  v_is_sent boolean;
  v_taken bigint := 0;
  v_slots integer[] := '{}'; v_batches bigint[] := '{}';
BEGIN
  -- mutant: claims run in REPEATABLE READ: IF false THEN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: claim needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  -- After a crash of the server, the worker's first claim rejoins, and waits for the disk.
  IF NOT EXISTS (SELECT FROM posthaste.worker
      WHERE id = p_worker AND stopped_at IS NULL AND identity = posthaste.session_identity())
     AND NOT posthaste.rejoin(p_worker) THEN
    RAISE EXCEPTION 'posthaste: worker % is not registered here or was declared dead', p_worker
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  SELECT * INTO v_queue FROM posthaste.queue q WHERE q.name = p_queue;
  IF v_queue.paused_at IS NOT NULL THEN
    RETURN;
  END IF;
  IF v_queue.rate IS NOT NULL THEN
    v_left := least(v_left, posthaste.rate_allowance(v_queue));
    IF v_left = 0 THEN
      v_more.batch := posthaste.wait_until_next(v_queue);
      RETURN NEXT v_more;
      RETURN;
    END IF;
  END IF;
  FOREACH v_priority IN ARRAY p_priorities LOOP
    v_begun := clock_timestamp();
    v_is_held := false;
    -- A single lane is locked without a check for work, which would cost as much as the claim. Of
    -- several lanes, the empty ones would stay locked while the others are claimed from.
    -- gate: a claim checks for work before it locks the lane: IF false THEN
    IF cardinality(p_priorities) = 1 THEN
      -- mutant: claims take no lane lock: v_is_held := true;
      v_is_held := pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, v_priority));
    END IF;
    IF NOT v_is_held THEN
      CONTINUE WHEN NOT posthaste.lane_has_work(p_queue, v_priority, p_worker);
      -- mutant: claims take no lane lock: PERFORM 1;
      -- mutant: the batch number is drawn outside the lock (insert):
      --   | PERFORM set_config('test.drawn', nextval('posthaste.batch_id')::text, true);
      -- gate: a claim waits before it locks the lane (insert):
      --   | IF p_limit = 10 THEN PERFORM posthaste.gate(6); END IF;
      PERFORM posthaste.hold_lane(p_queue, v_priority);
    END IF;
    -- While the lane is locked, no other session moves its jobs. All slots are read with one
    -- snapshot: of jobs committed to two segments between two reads, the newer ones would come
    -- first.
    v_now := posthaste.cursor_snapshot();
    FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
      v_expired := false; v_most := v_left; v_size := v_bytes;
      LOOP
        CASE v_slot
          -- repeat: slots 0..5
          WHEN 0 /*slot*/ THEN
            b := posthaste.claim_0(p_queue, v_priority, p_worker, p_token, v_most, v_size,
              v_expired, v_now);
          -- end
        END CASE;
        IF b.o_batch IS NULL THEN
          EXIT WHEN NOT v_expired;
          v_expired := false; v_most := v_left; v_size := v_bytes;
          CONTINUE;
        END IF;
        v_is_sent := p_answer IS NULL OR NOT b.o_mixed AND b.o_bytes + 128 * b.o_n <= v_answer;
        v_rows := b.o_n;
        -- o_bytes excludes names and keys, which are counted when the rows are read. A batch that
        -- needs at most half of v_answer gets half of it, and so has room for them.
        v_share := CASE WHEN 2 * (b.o_bytes + 128 * b.o_n) <= v_answer THEN v_answer / 2
                        ELSE v_answer END;
        IF v_is_sent OR b.o_mixed THEN
          CASE v_slot
            -- repeat: slots 0..5
            WHEN 0 /*slot*/ THEN
              IF p_answer IS NULL THEN
                RETURN QUERY SELECT * FROM posthaste.batch_jobs_0(b.o_batch, p_token, b.o_mixed) h;
              ELSIF v_is_sent AND b.o_first_id IS NOT NULL THEN
                RETURN QUERY
                  SELECT * FROM posthaste.transaction_jobs_if_small_0(b.o_batch, p_queue,
                    v_priority, b.o_xid, b.o_first_id, b.o_id, v_share) h;
              ELSIF v_is_sent THEN
                RETURN QUERY
                  SELECT * FROM posthaste.batch_jobs_if_small_0(b.o_batch, p_token, v_share) h;
              ELSE
                PERFORM FROM posthaste.batch_jobs_0(b.o_batch, p_token, true) h;
              END IF;
            -- end
          END CASE;
          GET DIAGNOSTICS v_rows = ROW_COUNT;
          IF v_is_sent AND v_rows = 0 AND NOT b.o_mixed THEN
            v_is_sent := false; v_rows := b.o_n;
          ELSIF v_is_sent THEN
            v_answer := v_answer - v_share;
          END IF;
        END IF;
        IF v_rows > 0 AND NOT v_is_sent THEN
          v_more.slot := v_slot; v_more.batch := b.o_batch;
          RETURN NEXT v_more;
          v_slots := v_slots || v_slot; v_batches := v_batches || b.o_batch;
          PERFORM set_config('posthaste.unread',
            p_token || ' ' || v_slots::text || ' ' || v_batches::text, false);
          v_more.slot := NULL;
          v_answer := 0;  -- later batches must be read after this one
        END IF;
        IF v_rows > 0 THEN
          v_left := v_left - v_rows; v_taken := v_taken + v_rows;
          IF v_queue.rate IS NOT NULL THEN
            PERFORM posthaste.consume_rate(v_queue, v_rows);
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
        -- The caller knows only p_limit, and must learn that another limit ended the claim.
        IF v_taken < p_limit THEN
          v_more.batch := 0;
          RETURN NEXT v_more;
        END IF;
        RETURN;
      END IF;
    END LOOP;
    -- A slow scan without a result: moves the cursors past the rows that it read.
    IF v_is_held AND v_taken = 0 AND clock_timestamp() - v_begun > interval '2 ms' THEN
      PERFORM posthaste.lane_has_work(p_queue, v_priority, p_worker);
    END IF;
    v_lanes := v_lanes + 1;
    IF v_lanes = 100 THEN v_more.batch := 0; RETURN NEXT v_more; RETURN; END IF;
  END LOOP;
END $f$;

-- The open batches of a claim, in its order, for a worker that lost the answer. Waits up to 5 s for
-- the locks of its lanes, so that a claim that still runs has ended before its batches are read.
-- Returns no row for more than a hundred lanes.
CREATE OR REPLACE FUNCTION posthaste.claim_batches(
  p_queue text, p_priorities integer[], p_worker bigint, p_token uuid)
RETURNS TABLE (slot smallint, batch bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET lock_timeout = '5s' SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
  v_priority integer;
BEGIN
  -- The jobs of a worker that was declared dead are quarantined.
  IF cardinality(p_priorities) > 100
     OR NOT EXISTS (SELECT FROM posthaste.worker WHERE id = p_worker AND stopped_at IS NULL
                       AND posthaste.is_this_store(identity)) THEN
    RETURN;
  END IF;
  FOREACH v_priority IN ARRAY p_priorities LOOP
    -- mutant: claims take no lane lock: PERFORM 1;
    -- gate: a claim waits before it locks the lane (insert):
    --   | IF p_limit = 10 THEN PERFORM posthaste.gate(6); END IF;
    PERFORM posthaste.hold_lane(p_queue, v_priority);
  END LOOP;
  RETURN QUERY
    SELECT f.slot, f.batch
      FROM (
        -- repeat: slots 0..5
        SELECT 0 /*slot*/::smallint AS slot, c.batch
          FROM posthaste.claim_0 c
         WHERE c.queue = p_queue AND c.priority = ANY (p_priorities)
           AND c.worker = p_worker AND c.token = p_token
           AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
        UNION ALL
        -- end
        SELECT NULL, NULL WHERE false
      ) f
     ORDER BY f.batch;
END $f$;

-- The jobs of a committed claim: those of its open batches, and those that a leader has moved to
-- posthaste.in_flight because they ran for long; with p_ids only these. No row for a worker that
-- was declared dead, whose jobs are quarantined. No lock is held while they are sent. STABLE, so
-- that everything is read with one snapshot: a job that moves is returned once.
CREATE OR REPLACE FUNCTION posthaste.claimed_jobs(
  p_worker bigint, p_token uuid, p_slots smallint[], p_batches bigint[], p_ids bigint[])
RETURNS SETOF posthaste.claimed LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_split boolean;  -- some jobs of the batch are closed
BEGIN
  IF NOT EXISTS (SELECT FROM posthaste.worker WHERE id = p_worker AND stopped_at IS NULL
      AND posthaste.is_this_store(identity)) THEN
    RETURN;
  END IF;
  RETURN QUERY
    SELECT (-1)::smallint, 0::bigint, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority,
           h.attempt, h.max_attempts, h.crashes, h.name, h.tag, h.unique_key, h.ordering_key,
           h.trace, h.kwargs
      FROM posthaste.in_flight h
     WHERE h.worker = p_worker AND h.token = p_token AND h.state = 'running'
       AND (p_ids IS NULL OR h.id = ANY (p_ids))
     ORDER BY h.id;
  FOR i IN 1 .. cardinality(p_batches) LOOP
    CASE p_slots[i]
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN
        CONTINUE WHEN EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = p_batches[i]);
        v_split := EXISTS (SELECT FROM posthaste.batch_split_0 s WHERE s.batch = p_batches[i]);
        RETURN QUERY SELECT * FROM posthaste.batch_jobs_0(p_batches[i], p_token, v_split) h
          WHERE p_ids IS NULL OR h.id = ANY (p_ids);
      -- end
    END CASE;
  END LOOP;
END $f$;

-- Priorities of a queue that have jobs and are not among the known ones. One index probe per slot
-- and gap between known lanes, so that rows of known lanes are never scanned. Returns only one,
-- because the rows after it may be slow to scan; up to a hundred for a queue with many lanes.
CREATE OR REPLACE FUNCTION posthaste.discover_priorities(p_queue text, p_known integer[])
RETURNS SETOF integer LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_bounds bigint[] := ARRAY[-2147483649]
    || ARRAY(SELECT DISTINCT p::bigint FROM unnest(p_known) p ORDER BY 1) || ARRAY[2147483648];
  v_slot integer; v_found bigint;
  v_left integer := CASE WHEN cardinality(p_known) > 32 THEN 100 ELSE 1 END;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    FOR i IN 1 .. cardinality(v_bounds) - 1 LOOP
      v_found := v_bounds[i];
      WHILE v_found + 1 < v_bounds[i + 1] LOOP
        CASE v_slot
          -- repeat: slots 0..5
          WHEN 0 /*slot*/ THEN
            v_found := posthaste.next_priority_0(p_queue, v_found, v_bounds[i + 1]);
          -- end
        END CASE;
        EXIT WHEN v_found IS NULL;
        RETURN NEXT v_found; v_left := v_left - 1;
        IF v_left = 0 THEN RETURN; END IF;
      END LOOP;
    END LOOP;
  END LOOP;
END $f$;
