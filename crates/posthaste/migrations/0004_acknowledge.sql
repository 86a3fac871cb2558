-- Acknowledge: a batch is closed as a whole, by one row, or job by job; each job row by whoever inserts its ack row first: worker, rescue,
-- hold and expiry all race for that key, and the losers are told and change nothing. Whoever closes must show the fence: the claim row with
-- this batch AND this token must exist (after a crash that forgot asynchronous claims, batch numbers come again, tokens do not), and the
-- job must belong to that batch.
--
-- Kinds of closing, which are the outcomes stored in ack_k and whole_k:
--   0 done     1 parked until later (retry, snooze)   2 dead or discarded   3 expired   4 awaiting
--   5 moved aside   6 held while it runs on   7 rescued from a dead worker   8 given back unstarted   9 cancelled

CALL posthaste.each_slot(0, 5, $sql$

-- Closes a whole batch: one row, however many jobs. False when that cannot be: the batch is not ours, or a job of it was or is just
-- being closed by itself. Whoever closes jobs by themselves holds the batch's lock shared until its transaction ends, and leaves a mark in
-- split_k.
CREATE FUNCTION posthaste.close_whole_@k@(p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_whole needs READ COMMITTED, not %', current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.whole_@k@ (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_@k@ c
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     AND NOT EXISTS (SELECT FROM posthaste.split_@k@ s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.whole_@k@ w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;

-- Closes a whole batch whose jobs all go on later, at one moment and with no attempt burnt. False as above.
CREATE FUNCTION posthaste.put_off_@k@(p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text) RETURNS boolean
LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_whole_@k@(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.parked_until() THEN
    v_slot := posthaste.enter_parked();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.ring_for((SELECT c.queue FROM posthaste.claim_@k@ c WHERE c.batch = p_batch), posthaste.bell());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_@k@(p_batch, p_token) r, posthaste.again(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database a younger job may lie within the batch's edges.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, and % lie within its edges', p_batch, p_jobs, v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;

-- Closes some jobs of a batch and returns those rows that this call closed.
CREATE FUNCTION posthaste.close_@k@(p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[]) RETURNS SETOF posthaste.store
LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  IF EXISTS (SELECT FROM posthaste.whole_@k@ w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_@k@ c WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.split_@k@ s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.split_@k@ (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_@k@(p_batch, p_token) r JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.ack_@k@ AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id, m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;

-- Jobs of a worker (or of one of its claims) in this slot that nobody has closed; of at most 200 batches at a time, because each batch that
-- is closed job by job costs its transaction a lock.
CREATE FUNCTION posthaste.open_of_@k@(p_worker bigint, p_token uuid) RETURNS TABLE (batch bigint, token uuid, ids bigint[])
LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_@k@ c
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.whole_@k@ w WHERE w.batch = c.batch) OFFSET 0) c,
         LATERAL posthaste.batch_rows_@k@(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$
$sql$);

-- The same in all slots. No hash joins: from PostgreSQL 16 on the planner would read all acknowledgements again for each batch.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.open_of(p_worker bigint, p_token uuid) RETURNS TABLE (slot smallint, batch bigint, token uuid, ids bigint[])
LANGUAGE plpgsql STABLE SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $f$
BEGIN
  RETURN QUERY SELECT @k@::smallint, o.* FROM posthaste.open_of_@k@(p_worker, p_token) o;
END $f$
$sql$);

-- Closes whole batches as done; returns the positions of those that could not be, which are to be settled job by job. Keys are not
-- freed: a batch that has a job with one is to be settled.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.close_whole(p_slots smallint[], p_batches bigint[], p_tokens uuid[], p_jobs integer[]) RETURNS integer[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_closed boolean;
  v_left integer[] := '{}';
  v_keeps boolean := EXISTS (SELECT FROM posthaste.queue q WHERE q.keep IS NOT NULL);
BEGIN
  FOR i IN 1 .. cardinality(p_slots) LOOP
    CASE p_slots[i]
      WHEN @k@ THEN v_closed := posthaste.close_whole_@k@(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      ELSE v_closed := false;
    END CASE;
    IF v_closed IS NOT TRUE THEN
      v_left := v_left || i;
    ELSIF v_keeps THEN
      CASE p_slots[i]
        WHEN @k@ THEN PERFORM posthaste.keep_whole_@k@(p_batches[i], p_tokens[i]);
      END CASE;
    END IF;
  END LOOP;
  RETURN v_left;
END $f$
$sql$);

-- Puts off all jobs of a batch, unburnt; false when they are to be settled job by job.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.put_off(p_slot smallint, p_batch bigint, p_token uuid, p_jobs integer, p_after interval, p_error text) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN RETURN posthaste.put_off_@k@(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
  END CASE;
END $f$
$sql$);

-- Closes jobs that are held, and returns them in the shape of store rows.
CREATE FUNCTION posthaste.close_held(p_token uuid, p_ids bigint[]) RETURNS SETOF posthaste.store LANGUAGE sql AS $f$
  WITH closed AS (
    DELETE FROM posthaste.held h WHERE h.id = ANY (p_ids) AND h.token = p_token AND h.state = 'running' RETURNING posthaste.let_go(h) AS job)
  SELECT (c.job).* FROM closed c
$f$;

-- Sends closed jobs where their kind says: parked or ready again, dead, held; and releases the unique keys and the turns of those that are done.
CREATE FUNCTION posthaste.dispose(p_jobs posthaste.store[], p_ids bigint[], p_kinds smallint[], p_attempts integer[], p_after interval[],
                                  p_until timestamptz[], p_states text[], p_errors text[]) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  DELETE FROM posthaste.unique_key u USING unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
   WHERE v.kind = 0 AND u.key = j.unique_key AND u.id = j.id;
  PERFORM posthaste.end_turns(array_agg(j.ordering_key), array_agg(j.turn))
     FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id WHERE v.kind = 0 AND j.turn IS NOT NULL HAVING count(*) > 0;

  INSERT INTO posthaste.store
  SELECT a.*
    FROM unnest(p_jobs) j
    JOIN (SELECT u.id, u.kind, u.attempt, u.error, CASE WHEN u.kind = 8 THEN v_now ELSE coalesce(u.until, v_now + u.after) END AS due
            FROM unnest(p_ids, p_kinds, p_attempts, p_after, p_until, p_errors) u(id, kind, attempt, after, until, error)) v ON v.id = j.id,
    LATERAL (SELECT CASE WHEN v.due > v_now AND v.due > (SELECT posthaste.parked_until()) THEN (SELECT posthaste.enter_parked())
                         ELSE (SELECT posthaste.enter_ready()) + posthaste.ring_for(j.queue, (SELECT posthaste.bell())) END) s(slot),
    posthaste.again(j, s.slot, v.due, v.attempt, 0::smallint, v.error) a
   WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);

  INSERT INTO posthaste.dead
  SELECT d.*
    FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds, p_attempts, p_states, p_errors) v(id, kind, attempt, state, error) ON v.id = j.id,
    posthaste.again(j, j.slot, attempt => v.attempt, error => v.error) a, posthaste.to_keep(a, v.state) d
   WHERE v.kind = 2 ON CONFLICT (id) DO NOTHING;

  -- A suspect that is given back is a suspect still: it was not seen to run alone.
  INSERT INTO posthaste.held
  SELECT h.*
    FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id, posthaste.to_hold(j, 'suspect', posthaste.suspect_until(j.crashes)) h
   WHERE v.kind = 8 AND j.crashes > 0;

  -- A confirmation that is already here ends the job at once. One whose transaction is open still, or whose snapshot is older than the held
  -- row, meets it later: posthaste.confirm_held().
  WITH here AS (
    DELETE FROM posthaste.confirmed c USING unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
     WHERE v.kind = 4 AND c.id = j.id RETURNING c.id),
  finished AS (
    INSERT INTO posthaste.finished SELECT f.* FROM here JOIN unnest(p_jobs) j ON j.id = here.id, posthaste.to_finish(j, NULL) f),
  freed AS (
    DELETE FROM posthaste.unique_key u USING here, unnest(p_jobs) j WHERE j.id = here.id AND u.key = j.unique_key AND u.id = j.id),
  ended AS (
    INSERT INTO posthaste.store
    SELECT e.* FROM here JOIN unnest(p_jobs) j ON j.id = here.id AND j.turn IS NOT NULL, posthaste.turn_ends(ARRAY[j.ordering_key], ARRAY[j.turn]) e),
  told AS (
    INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs)
    SELECT j.queue, j.priority, j.name, j.tag, 'done_total', 1 FROM here JOIN unnest(p_jobs) j ON j.id = here.id)
  INSERT INTO posthaste.held
  SELECT h.*
    FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds, p_attempts, p_until, p_errors) v(id, kind, attempt, until, error) ON v.id = j.id,
    posthaste.again(j, j.slot, attempt => v.attempt, crashes => 0::smallint, error => v.error) a, posthaste.to_hold(a, 'awaiting', v.until) h
   WHERE v.kind = 4 AND j.id NOT IN (SELECT id FROM here);
END $f$;

-- Settles jobs of one batch, each in its own way, and returns the ids that were still ours; the others were lost to somebody else and
-- nothing of them was changed. Works in any isolation level, so that a handler can finish its job in its own transaction.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.settle(p_slot smallint, p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[], p_attempts integer[],
                                 p_after interval[], p_until timestamptz[], p_states text[], p_errors text[])
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_jobs posthaste.store[];
  v_rest bigint[];
  v_fails boolean := p_kinds && '{1,2}';
  v_keeps boolean := EXISTS (SELECT FROM posthaste.queue q WHERE q.keep IS NOT NULL);
  v_worker bigint := CASE WHEN v_fails OR v_keeps THEN posthaste.worker_of(p_slot, p_batch, p_token, p_ids) END;
BEGIN
  CASE p_slot
    WHEN @k@ THEN v_jobs := ARRAY(SELECT j FROM posthaste.close_@k@(p_batch, p_token, p_ids, p_kinds) j);
    ELSE v_jobs := '{}';
  END CASE;
  IF cardinality(v_jobs) < cardinality(p_ids) THEN
    v_rest := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT j.id FROM unnest(v_jobs) j);
    v_jobs := v_jobs || ARRAY(SELECT j FROM posthaste.close_held(p_token, v_rest) j);
  END IF;
  IF EXISTS (SELECT FROM unnest(p_kinds) kind WHERE kind <> 0) OR EXISTS (SELECT FROM unnest(v_jobs) j WHERE j.unique_key IS NOT NULL OR j.turn IS NOT NULL) THEN
    PERFORM posthaste.dispose(v_jobs, p_ids, p_kinds, p_attempts, p_after, p_until, p_states, p_errors);
  END IF;
  IF v_fails THEN
    PERFORM posthaste.note_attempts(v_jobs, v_worker, p_ids, p_kinds, p_attempts, p_states, p_errors);
  END IF;
  IF v_keeps THEN
    INSERT INTO posthaste.finished
    SELECT f.* FROM unnest(v_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id, posthaste.to_finish(j, v_worker) f WHERE v.kind = 0;
  END IF;
  RETURN ARRAY(SELECT j.id FROM unnest(v_jobs) j);
END $f$
$sql$);

-- Whose id that is which a receiver saw: a job's own, or the one that a row of posthaste.outbox was given, which holds the key as long as its job is not
-- done. NULL: not of this database, or forgotten.
CREATE FUNCTION posthaste.job_of(delivery_id uuid) RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce((SELECT d.id FROM (SELECT ('x0' || substr(replace(delivery_id::text, '-', ''), 18, 15))::bit(64)::bigint AS id) d
                    WHERE posthaste.delivery_id(d.id) = delivery_id),
                  (SELECT u.id FROM posthaste.unique_key u WHERE u.key = 'outbox:' || delivery_id))
$f$;

-- Confirms the effect of a job that awaits it; for receivers in any language, best in the transaction of the effect. True when the id is of
-- this database (a second confirmation does nothing), false when it is not, or was given to a row of posthaste.outbox that is done.
CREATE FUNCTION posthaste.done(delivery_id uuid) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_id bigint := posthaste.job_of(delivery_id);
  v_held posthaste.held;
BEGIN
  IF v_id IS NULL THEN
    RETURN false;
  END IF;
  DELETE FROM posthaste.held h WHERE h.id = v_id AND h.state = 'awaiting' RETURNING h.* INTO v_held;
  IF FOUND THEN
    DELETE FROM posthaste.unique_key u WHERE u.key = v_held.unique_key AND u.id = v_id;
    IF v_held.turn IS NOT NULL THEN
      PERFORM posthaste.end_turns(ARRAY[v_held.ordering_key], ARRAY[v_held.turn]);
    END IF;
    INSERT INTO posthaste.finished SELECT f.* FROM posthaste.to_finish(posthaste.let_go(v_held), NULL) f;
    INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs) VALUES (v_held.queue, v_held.priority, v_held.name, v_held.tag, 'done_total', 1);
  ELSE
    INSERT INTO posthaste.confirmed (id) VALUES (v_id) ON CONFLICT DO NOTHING;
  END IF;
  RETURN true;
END $f$;

-- Gives back what a claim handed out when its answer never came: those jobs were never started. The worker repeats it for a while,
-- because the claim may still commit after the first try.
CREATE FUNCTION posthaste.return_claim(p_worker bigint, p_token uuid) RETURNS bigint LANGUAGE plpgsql
SET enable_bitmapscan = off SET jit = off AS $f$
DECLARE
  v_open record;
  v_jobs bigint := 0;
BEGIN
  FOR v_open IN
    SELECT o.* FROM posthaste.open_of(p_worker, p_token) o UNION ALL
    -- By now a leader may have held them, as it holds whatever is open for long.
    SELECT (-1)::smallint, 0, p_token, array_agg(h.id) FROM posthaste.held h
     WHERE h.worker = p_worker AND h.token = p_token AND h.state = 'running' HAVING count(*) > 0
  LOOP
    v_jobs := v_jobs + cardinality(posthaste.settle(v_open.slot, v_open.batch, v_open.token, v_open.ids,
      array_fill(8::smallint, ARRAY[cardinality(v_open.ids)]), NULL, NULL, NULL, NULL, NULL));
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Ends the next job of a queue if it cannot be read: after a claim has failed again and again, down to a single job. Whoever is readable
-- after all (a race with another worker) is given back.
CREATE FUNCTION posthaste.bury_next(p_queue text, p_priorities integer[], p_worker bigint, p_token uuid, p_error text) RETURNS bigint
LANGUAGE plpgsql AS $f$
DECLARE
  r posthaste.claimed;
  v_readable boolean;
  v_buried bigint := 0;
BEGIN
  FOR r IN SELECT * FROM posthaste.claim(p_queue, p_priorities, p_worker, p_token, 1, 1) LOOP
    BEGIN
      v_readable := octet_length(r.kwargs::text) <= 16777216;
    EXCEPTION WHEN OTHERS THEN
      v_readable := false;
    END;
    PERFORM posthaste.settle(r.slot, r.batch, p_token, ARRAY[r.id], ARRAY[CASE WHEN v_readable THEN 8 ELSE 2 END::smallint],
                             ARRAY[r.attempt], NULL, NULL, ARRAY['dead'], ARRAY[CASE WHEN v_readable THEN NULL ELSE p_error END]);
    v_buried := v_buried + CASE WHEN v_readable THEN 0 ELSE 1 END;
  END LOOP;
  RETURN v_buried;
END $f$;
