-- Acknowledge: a batch is closed as a whole, by one row, or job by job. A job is closed by the
-- session that inserts its row into job_done_k first: workers, rescue, the move of running jobs and
-- expiry compete for that key, and those that lose change nothing. The session must present the
-- fence: the claim row with this batch and this token must exist (after a crash that lost
-- asynchronous claims, batch numbers are drawn again, tokens are not), and the job must belong to
-- that batch.
--
-- Kinds of closing, which are the outcomes stored in job_done_k and batch_done_k:
--   0 done     1 scheduled for later (retry, snooze)   2 dead or discarded   3 expired   4 awaiting
--   5 moved to the overflow   6 moved to in_flight while it runs on   7 rescued from a dead worker
--   8 given back unstarted   9 cancelled

-- Makes the commit of this transaction wait for the disk, whatever the session's setting. A worker
-- forgets a job once its acknowledgement is answered, so a crash must not lose the acknowledgement.
CREATE OR REPLACE FUNCTION posthaste.wait_for_disk() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('synchronous_commit'::text) = 'off'::text THEN
    PERFORM set_config('synchronous_commit'::text, 'local'::text, true);
  END IF;
END $f$;

-- Closes a whole batch by one row. Returns false if the batch does not have this fence, or if one
-- of its jobs was closed singly or is being closed. A session that closes single jobs holds the
-- batch's lock in shared mode until its transaction ends, and writes a row to batch_split_k.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.close_batch_0(
  p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_batches needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  -- mutant: a batch is closed while one of its jobs is being closed alone: IF false THEN
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.batch_done_0 (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_0 c
   -- mutant: a fence token is reused: WHERE c.batch = p_batch AND c.n = p_jobs
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     -- mutant: a batch is closed although one of its jobs was closed alone:
     AND NOT EXISTS (SELECT FROM posthaste.batch_split_0 s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;
-- end

-- Closes a whole batch and schedules all its jobs for one time, without counting an attempt.
-- Returns false as above.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.reschedule_0(
  p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_batch_0(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.promote_horizon() THEN
    v_slot := posthaste.enter_scheduled();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.notify((SELECT c.queue FROM posthaste.claim_0 c
          WHERE c.batch = p_batch), posthaste.listeners());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_0(p_batch, p_token) r,
         posthaste.reschedule_row(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database, a later job may be within the batch's bounds.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, but % are within its bounds', p_batch, p_jobs,
      v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;
-- end

-- Closes some jobs of a batch and returns those rows that this call closed.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.close_0(
  p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[])
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  -- mutant: a job is closed alone after its batch was closed (2 lines):
  --   | IF NOT EXISTS (SELECT FROM posthaste.claim_0 c
  IF EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_0 c
         -- mutant: a fence token is reused: WHERE c.batch = p_batch) THEN
         WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.batch_split_0 s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.batch_split_0 (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_0(p_batch, p_token) r
        JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.job_done_0 AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id,
        m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;
-- end

-- Open jobs of a worker (or of one of its claims) in this slot, of at most 200 batches at a time,
-- because each batch that is closed job by job costs the transaction a lock.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.open_jobs_0(p_worker bigint, p_token uuid)
RETURNS TABLE (batch bigint, token uuid, ids bigint[]) LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_0 c
           -- bug: rescue also takes the jobs of live workers:
           --   | WHERE (p_token IS NULL OR c.token = p_token)
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
               OFFSET 0) c,
         LATERAL posthaste.batch_rows_0(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$;
-- end

-- The same in all slots. No hash joins: from PostgreSQL 16 on the planner would read all
-- acknowledgements again for each batch.
CREATE OR REPLACE FUNCTION posthaste.open_jobs(p_worker bigint, p_token uuid)
RETURNS TABLE (slot smallint, batch bigint, token uuid, ids bigint[])
LANGUAGE plpgsql STABLE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- repeat: slots 0..5
  RETURN QUERY SELECT 0 /*slot*/::smallint, o.* FROM posthaste.open_jobs_0(p_worker, p_token) o;
  -- end
END $f$;

-- Closes whole batches as done. Returns the positions of those that it could not close, which must
-- be settled job by job. It releases no keys: a batch that has a job with a key must be settled.
CREATE OR REPLACE FUNCTION posthaste.close_batches(
  p_slots smallint[], p_batches bigint[], p_tokens uuid[], p_jobs integer[])
RETURNS integer[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_closed boolean;
  v_left integer[] := '{}';
  v_keeps boolean := EXISTS (SELECT FROM posthaste.queue q WHERE q.keep IS NOT NULL);
BEGIN
  PERFORM posthaste.wait_for_disk();
  FOR i IN 1 .. cardinality(p_slots) LOOP
    CASE p_slots[i]
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN
        v_closed := posthaste.close_batch_0(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      -- end
      ELSE v_closed := false;
    END CASE;
    -- mutant: close_batches() does not check whether it closed anything: IF v_closed IS NULL THEN
    IF v_closed IS NOT TRUE THEN
      v_left := v_left || i;
    ELSIF v_keeps THEN
      CASE p_slots[i]
        -- repeat: slots 0..5
        WHEN 0 /*slot*/ THEN PERFORM posthaste.keep_batch_0(p_batches[i], p_tokens[i]);
        -- end
      END CASE;
    END IF;
  END LOOP;
  RETURN v_left;
END $f$;

-- Reschedules all jobs of a batch without counting an attempt. Returns false if they must be
-- settled job by job.
CREATE OR REPLACE FUNCTION posthaste.reschedule(
  p_slot smallint, p_batch bigint, p_token uuid, p_jobs integer, p_after interval, p_error text)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM posthaste.wait_for_disk();
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN
      RETURN posthaste.reschedule_0(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
    -- end
  END CASE;
END $f$;

-- Closes jobs in flight, and returns them in the shape of store rows.
CREATE OR REPLACE FUNCTION posthaste.close_in_flight(p_token uuid, p_ids bigint[])
RETURNS SETOF posthaste.store LANGUAGE sql AS $f$
  WITH closed AS (
    DELETE FROM posthaste.in_flight h
      WHERE h.id = ANY (p_ids) AND h.token = p_token AND h.state = 'running'
      RETURNING posthaste.from_in_flight(h) AS job)
  SELECT (c.job).* FROM closed c
$f$;

-- Moves closed jobs by their kind: to the ready log or a scheduled slot, to posthaste.dead or to
-- posthaste.in_flight. Releases the unique keys and the turns of completed jobs.
CREATE OR REPLACE FUNCTION posthaste.route_closed_jobs(
  p_jobs posthaste.store[], p_ids bigint[], p_kinds smallint[], p_attempts integer[],
  p_after interval[], p_until timestamptz[], p_states text[], p_errors text[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  DELETE FROM posthaste.unique_key u USING unnest(p_jobs) j
    JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
   -- bug: a completed job keeps its unique key:
   --   | WHERE false AND u.key = j.unique_key AND u.id = j.id;
   WHERE v.kind = 0 AND u.key = j.unique_key AND u.id = j.id;
  PERFORM posthaste.end_turns(array_agg(j.ordering_key), array_agg(j.turn))
     FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
       -- mutant: a completed job keeps its turn:
       --   | WHERE v.kind = 99 AND j.turn IS NOT NULL HAVING count(*) > 0;
       WHERE v.kind = 0 AND j.turn IS NOT NULL HAVING count(*) > 0;

  INSERT INTO posthaste.store
  SELECT a.*
    FROM unnest(p_jobs) j
    JOIN (SELECT u.id, u.kind, u.attempt, u.error,
        CASE WHEN u.kind = 8 THEN v_now ELSE coalesce(u.until, v_now + u.after) END AS due
            FROM unnest(p_ids, p_kinds, p_attempts, p_after, p_until, p_errors) u(id, kind, attempt,
                after, until, error)) v ON v.id = j.id,
    -- mutant: a retry checks only the clock: LATERAL (SELECT CASE WHEN v.due > v_now
    LATERAL (SELECT CASE WHEN v.due > v_now AND v.due > (SELECT posthaste.promote_horizon())
          THEN (SELECT posthaste.enter_scheduled())
                         ELSE (SELECT posthaste.enter_ready()) + posthaste.notify(j.queue,
                             (SELECT posthaste.listeners())) END) s(slot),
    -- While the clock is earlier than the published horizon, a job cannot wait until it is due. An
    -- attempt without a back-off is not counted.
    -- mutant: each ineffective back-off counts an attempt:
    --   | LATERAL (SELECT CASE WHEN false THEN j.attempt
    LATERAL (SELECT CASE WHEN s.slot < 6 AND v.due > clock_timestamp() THEN j.attempt
                         ELSE v.attempt END) b(attempt),
    -- bug: a retry resets the number of attempts:
    --   | posthaste.reschedule_row(j, s.slot, v.due, 0, 0::smallint, v.error) a
    posthaste.reschedule_row(j, s.slot, v.due, b.attempt, 0::smallint, v.error) a
   -- mutant: a retry is closed but not scheduled: WHERE v.kind = 8 AND j.crashes = 0;
   -- bug: every third retry is not scheduled:
   --   | WHERE (v.kind = 1 AND j.id % 3 > 0) OR (v.kind = 8 AND j.crashes = 0);
   -- bug: every fifth completed job runs again:
   --   | WHERE v.kind = 1 OR (v.kind = 0 AND j.id % 5 = 0) OR (v.kind = 8 AND j.crashes = 0);
   -- bug: a discarded job runs again: WHERE v.kind IN (1, 2) OR (v.kind = 8 AND j.crashes = 0);
   WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);

  INSERT INTO posthaste.dead
  SELECT d.*
    FROM unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds, p_attempts, p_states, p_errors) v(id, kind, attempt, state,
        error) ON v.id = j.id,
    posthaste.reschedule_row(j, j.slot, attempt => v.attempt, error => v.error) a,
    posthaste.to_dead(a, v.state) d
   -- bug: a dead-lettered job is not recorded:
   --   | WHERE v.kind = 2 AND false ON CONFLICT (id) DO NOTHING;
   WHERE v.kind = 2 ON CONFLICT (id) DO NOTHING;

  -- A quarantined job that is returned stays quarantined: it has not run alone yet.
  INSERT INTO posthaste.in_flight
  SELECT h.*
    FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id,
      posthaste.to_in_flight(j, 'quarantined', posthaste.quarantine_until(j.crashes)) h
   WHERE v.kind = 8 AND j.crashes > 0;

  -- A confirmation that has already arrived ends the job at once. One whose transaction is still
  -- open, or whose snapshot is older than the row in posthaste.in_flight, is applied later by
  -- posthaste.confirm_in_flight().
  WITH here AS (
    DELETE FROM posthaste.confirmed c USING unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
     WHERE v.kind = 4 AND c.id = j.id RETURNING c.id),
  finished AS (
    INSERT INTO posthaste.finished SELECT f.* FROM here JOIN unnest(p_jobs) j ON j.id = here.id,
      posthaste.to_finished(j, NULL) f),
  freed AS (
    DELETE FROM posthaste.unique_key u USING here, unnest(p_jobs) j
      WHERE j.id = here.id AND u.key = j.unique_key AND u.id = j.id),
  ended AS (
    INSERT INTO posthaste.store
    SELECT e.* FROM here JOIN unnest(p_jobs) j ON j.id = here.id AND j.turn IS NOT NULL,
           posthaste.turn_end_rows(ARRAY[j.ordering_key], ARRAY[j.turn]) e),
  noted AS (
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT j.queue, j.priority, j.name, j.tag, 'completed_total', 1
      FROM here JOIN unnest(p_jobs) j ON j.id = here.id)
  INSERT INTO posthaste.in_flight
  SELECT h.*
    FROM unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds, p_attempts, p_until, p_errors) v(id, kind, attempt, until,
        error) ON v.id = j.id,
    posthaste.reschedule_row(j, j.slot, attempt => v.attempt, crashes => 0::smallint,
                             error => v.error) a,
    posthaste.to_in_flight(a, 'awaiting', v.until) h
   WHERE v.kind = 4 AND j.id NOT IN (SELECT id FROM here);
END $f$;

-- Settles jobs of one batch, each with its own outcome, and returns the ids of those that it
-- closed. The others were closed by another session, and are not changed. Works in any isolation
-- level, so that a handler can finish its job in its own transaction.
CREATE OR REPLACE FUNCTION posthaste.settle(
  p_slot smallint, p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[],
  p_attempts integer[], p_after interval[], p_until timestamptz[], p_states text[], p_errors text[])
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs posthaste.store[];
  v_rest bigint[];
  v_fails boolean := p_kinds && '{1,2}';
  v_keeps boolean := EXISTS (SELECT FROM posthaste.queue q WHERE q.keep IS NOT NULL);
  v_worker bigint := CASE WHEN v_fails
      OR v_keeps THEN posthaste.worker_of(p_slot, p_batch, p_token, p_ids) END;
BEGIN
  -- A smaller answer fits into the network buffers even if the client reads nothing.
  IF cardinality(p_ids) > 1000 THEN
    PERFORM posthaste.limit_send_time();
  END IF;
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_0(p_batch, p_token, p_ids, p_kinds) j);
    -- end
    ELSE v_jobs := '{}';
  END CASE;
  IF cardinality(v_jobs) < cardinality(p_ids) THEN
    v_rest := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT j.id FROM unnest(v_jobs) j);
    v_jobs := v_jobs || ARRAY(SELECT j FROM posthaste.close_in_flight(p_token, v_rest) j);
  END IF;
  IF EXISTS (SELECT FROM unnest(p_kinds) kind WHERE kind <> 0)
    OR EXISTS (SELECT FROM unnest(v_jobs) j WHERE j.unique_key IS NOT NULL OR j.turn IS NOT NULL)
    THEN
    PERFORM posthaste.route_closed_jobs(v_jobs, p_ids, p_kinds, p_attempts, p_after, p_until,
        p_states, p_errors);
  END IF;
  IF v_fails THEN
    PERFORM posthaste.note_attempts(v_jobs, v_worker, p_ids, p_kinds, p_attempts,
        p_states, p_errors);
  END IF;
  IF v_keeps THEN
    INSERT INTO posthaste.finished
    SELECT f.* FROM unnest(v_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id,
           posthaste.to_finished(j, v_worker) f WHERE v.kind = 0;
  END IF;
  RETURN ARRAY(SELECT j.id FROM unnest(v_jobs) j);
END $f$;

-- Returns the jobs of a claim whose answer the worker did not receive: they were never started. The
-- worker repeats this for a while, because the claim may still commit after the first call.
CREATE OR REPLACE FUNCTION posthaste.return_claim(p_worker bigint, p_token uuid)
RETURNS bigint LANGUAGE plpgsql
SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_open record;
  v_jobs bigint := 0;
BEGIN
  PERFORM posthaste.wait_for_disk();
  FOR v_open IN
    SELECT o.* FROM posthaste.open_jobs(p_worker, p_token) o UNION ALL
    -- A leader may have moved them there, as it does with jobs that are open for long.
    SELECT (-1)::smallint, 0, p_token, array_agg(h.id) FROM posthaste.in_flight h
     -- mutant: a lost claim is not searched in flight:
     --   | WHERE h.worker = p_worker AND h.token = p_token AND h.state = 'awaiting'
     --   |   HAVING count(*) > 0
     WHERE h.worker = p_worker AND h.token = p_token AND h.state = 'running' HAVING count(*) > 0
  LOOP
    v_jobs := v_jobs
      + cardinality(posthaste.settle(v_open.slot, v_open.batch, v_open.token, v_open.ids,
      array_fill(8::smallint, ARRAY[cardinality(v_open.ids)]), NULL, NULL, NULL, NULL, NULL));
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Dead-letters the next job of a queue if it cannot be read; called after claims have failed
-- repeatedly, down to a single job. A readable job (after a race with another worker) is returned.
-- Workers read UTF-8, and a database may contain text that cannot be converted to it.
CREATE OR REPLACE FUNCTION posthaste.dead_letter_next(
  p_queue text, p_priorities integer[], p_worker bigint, p_token uuid, p_error text)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_queue posthaste.queue;
  r posthaste.claimed;
  v_readable boolean;
  v_dead bigint := 0;
BEGIN
  SELECT * INTO v_queue FROM posthaste.queue q WHERE q.name = p_queue AND q.rate IS NOT NULL;
  IF FOUND AND posthaste.rate_allowance(v_queue) = 0 THEN
    -- The failed claim used up a job of the rate, and handed out none.
    PERFORM posthaste.consume_rate(v_queue, -1);
  END IF;
  FOR r IN SELECT * FROM posthaste.claim(p_queue, p_priorities, p_worker, p_token, 1, 1) LOOP
    CONTINUE WHEN r.id IS NULL;
    BEGIN
      v_readable := octet_length(r.kwargs::text) <= 16777216
        AND convert_to(concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs::text),
          'UTF8') IS NOT NULL;
    EXCEPTION WHEN OTHERS THEN
      v_readable := false;
    END;
    PERFORM posthaste.settle(r.slot, r.batch, p_token, ARRAY[r.id],
                             ARRAY[CASE WHEN v_readable THEN 8 ELSE 2 END::smallint],
                             ARRAY[r.attempt], NULL, NULL, ARRAY['dead'],
                             ARRAY[CASE WHEN v_readable THEN NULL ELSE p_error END]);
    v_dead := v_dead + CASE WHEN v_readable THEN 0 ELSE 1 END;
  END LOOP;
  RETURN v_dead;
END $f$;
