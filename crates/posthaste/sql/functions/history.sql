-- History: failed attempts and retained completed jobs, in volumes.

-- The current volume of a shelf.
CREATE OR REPLACE FUNCTION posthaste.volume(shelf text) RETURNS smallint LANGUAGE sql STABLE AS $f$
  SELECT coalesce((SELECT v.slot FROM posthaste.volume v
        WHERE v.shelf = $1 ORDER BY v.began_at DESC NULLS LAST, v.slot LIMIT 1),
                  CASE WHEN $1 = 'long' THEN 4 ELSE 0 END)::smallint
$f$;

-- A completed job as a row of posthaste.finished; no row if its queue retains none.
CREATE OR REPLACE FUNCTION posthaste.to_finished(job posthaste.store, worker bigint)
RETURNS SETOF posthaste.finished LANGUAGE sql STABLE AS $f$
  SELECT job.id, clock_timestamp(), job.enqueued_at, job.scheduled_at, job.expires_at, worker,
         job.priority, job.attempt, job.max_attempts,
         CASE WHEN q.keep <= interval '1 day' THEN (SELECT posthaste.volume('day'))
             ELSE (SELECT posthaste.volume('long')) END,
         job.queue, job.name, job.tag, job.unique_key, job.ordering_key, job.last_error,
         (SELECT w.name FROM posthaste.worker w WHERE w.id = worker), job.trace, job.kwargs
    FROM posthaste.queue q WHERE q.name = job.queue AND q.keep IS NOT NULL
$f$;

-- Retains the jobs of a batch that was closed in one row, if their queue is configured to.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.keep_batch_0(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.finished
  SELECT f.*
    FROM (SELECT c.worker FROM posthaste.claim_0 c JOIN posthaste.queue q ON q.name = c.queue
                    -- mutant: a fence token is reused:
                    --   | WHERE c.batch = p_batch AND q.keep IS NOT NULL
                    WHERE c.batch = p_batch AND c.token = p_token AND q.keep IS NOT NULL
                      OFFSET 0) c,
                  LATERAL posthaste.batch_rows_0(p_batch, p_token) r,
                  posthaste.to_finished(r, c.worker) f
$f$;
-- end

-- Records failed attempts; kinds, attempts, states and errors are those of settle(). Outcomes that
-- count no attempt (a snooze, or a job that expired while waiting) are no failures, except a
-- worker's death (kind 7).
CREATE OR REPLACE FUNCTION posthaste.note_attempts(
  p_jobs posthaste.store[], p_worker bigint, p_ids bigint[], p_kinds smallint[],
  p_attempts integer[], p_states text[], p_errors text[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.attempt (slot, job, worker, attempt, outcome, queue, name,
      worker_name, error)
  SELECT (SELECT posthaste.volume('attempt')), j.id, p_worker, j.attempt + 1,
         CASE v.kind WHEN 1 THEN 'retried' WHEN 2 THEN v.state ELSE 'crashed' END, j.queue,
         j.name, w.name,
         CASE v.kind WHEN 7 THEN 'its worker died while it had this job' ELSE v.error END
    FROM unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds, p_attempts, p_states, p_errors) v(id, kind, attempt, state,
        error) ON v.id = j.id
    LEFT JOIN posthaste.worker w ON w.id = p_worker
   WHERE (v.kind = 1 AND v.attempt > j.attempt) OR (v.kind = 2 AND v.state <> 'expired')
     OR v.kind = 7
$f$;

-- The worker of a batch, or of jobs that were moved out of it and are in flight. Called before they
-- are closed.
CREATE OR REPLACE FUNCTION posthaste.worker_of(
  p_slot smallint, p_batch bigint, p_token uuid, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_worker bigint;
BEGIN
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN
      v_worker := (SELECT c.worker FROM posthaste.claim_0 c
        -- mutant: a fence token is reused: WHERE c.batch = p_batch);
        WHERE c.batch = p_batch AND c.token = p_token);
    -- end
    ELSE NULL;
  END CASE;
  RETURN coalesce(v_worker,
      (SELECT h.worker FROM posthaste.in_flight h
        WHERE h.id = ANY (p_ids) AND h.token = p_token LIMIT 1));
END $f$;

-- Truncates volumes older than their shelf's retention, and begins a new one when the current one
-- covers a third of it. A locked volume is kept. o_turned: the number of volumes begun; o_blocker:
-- the holder of a lock for more than a second.
CREATE OR REPLACE FUNCTION posthaste.tidy_history(OUT o_turned integer, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v record;
  v_now timestamptz := clock_timestamp();
  v_retained_until timestamptz := posthaste.retention_clock();
  v_table regclass;
  v_holder text;
  v_has_rows boolean;
BEGIN
  o_turned := 0;
  IF NOT pg_try_advisory_xact_lock(1885893476, 5) THEN
    RETURN;
  END IF;
  -- The clock has stepped back.
  UPDATE posthaste.volume SET began_at = v_now WHERE began_at > v_now;
  -- The oldest of each shelf first: the next can use the space.
  FOR v IN
    SELECT b.shelf, b.slot, k.keep, b.began_at, lead(b.began_at) OVER shelf AS ended_at
      FROM posthaste.volume b, LATERAL (
        SELECT CASE b.shelf WHEN 'attempt' THEN (SELECT s.keep_attempts FROM posthaste.setting s)
            WHEN 'day' THEN interval '1 day'
                            WHEN 'relay' THEN interval '1 hour'
                              ELSE greatest(interval '1 day',
                                (SELECT max(q.keep) FROM posthaste.queue q)) END AS keep) k
     WHERE b.began_at IS NOT NULL WINDOW shelf AS (PARTITION BY b.shelf
         ORDER BY b.began_at, b.slot DESC) ORDER BY b.shelf, b.began_at, b.slot DESC
  LOOP
    v_table := 'posthaste.' || CASE v.shelf WHEN 'attempt' THEN 'attempt_'
        WHEN 'relay' THEN 'relay_' ELSE 'finished_' END || v.slot;
    IF v.ended_at <= v_retained_until - v.keep THEN
      v_holder := posthaste.lock_holder(ARRAY[v_table]);
      IF v_holder IS NULL AND posthaste.empty_volume(v_table) THEN
        UPDATE posthaste.volume SET began_at = NULL WHERE shelf = v.shelf AND slot = v.slot;
      END IF;
      o_blocker := coalesce(o_blocker, v_holder);
    ELSIF v.ended_at IS NULL AND v.began_at <= v_now - v.keep / 3 THEN
      EXECUTE format('SELECT EXISTS (SELECT FROM %s)', v_table) INTO v_has_rows;
      IF v_has_rows THEN
        UPDATE posthaste.volume n SET began_at = v_now
         WHERE (n.shelf, n.slot) = (SELECT f.shelf, f.slot FROM posthaste.volume f
             WHERE f.shelf = v.shelf AND f.began_at IS NULL ORDER BY f.slot LIMIT 1);
        o_turned := o_turned + FOUND::integer;
      END IF;
    END IF;
  END LOOP;
END $f$;

-- Truncates a volume unless it is locked: without waiting, so that no session queues behind this
-- one.
CREATE OR REPLACE FUNCTION posthaste.empty_volume(volume regclass)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', volume);
  EXECUTE format('TRUNCATE %s', volume);
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;
