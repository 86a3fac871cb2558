-- Operations on queues and jobs: pause, resume, retention, run now, redrive.

-- Pauses a queue: from its commit on nothing is claimed; running jobs continue, and enqueuing
-- works. Returns false if it is already paused.
CREATE OR REPLACE FUNCTION posthaste.pause(queue text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  INSERT INTO posthaste.queue AS q (name, paused_at) VALUES (queue, clock_timestamp())
  ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at WHERE q.paused_at IS NULL;
  RETURN FOUND;
END $f$;

-- Resumes a queue. Returns false if it was not paused.
CREATE OR REPLACE FUNCTION posthaste.resume(queue text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  UPDATE posthaste.queue q SET paused_at = NULL WHERE q.name = queue AND q.paused_at IS NOT NULL;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM posthaste.notify(queue, posthaste.listeners());
  RETURN true;
END $f$;

-- Retains completed jobs of a queue for at least this long; NULL: only as long as their segment.
-- Returns false if it was set so before.
CREATE OR REPLACE FUNCTION posthaste.keep(queue text, keep interval)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
BEGIN
  IF keep IS NULL THEN
    UPDATE posthaste.queue q SET keep = NULL WHERE q.name = queue AND q.keep IS NOT NULL;
  ELSE
    INSERT INTO posthaste.queue AS q (name, keep) VALUES (queue, keep)
    ON CONFLICT (name) DO UPDATE SET keep = excluded.keep
      WHERE q.keep IS DISTINCT FROM excluded.keep;
  END IF;
  RETURN FOUND;
END $f$;

-- Sends matching scheduled jobs to work, at most this many, those due first; not those that wait
-- for their turn. Reading the slot takes long, so the promoter is locked only while they are
-- closed.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.retry_6(
  p_ids bigint[], p_queue text, p_name text, p_tag text, p_state text, p_error text, p_limit bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.scheduled_6 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
     WHERE (p_ids IS NULL OR r.id = ANY (p_ids))
       AND (p_queue IS NULL OR coalesce(r.own_queue, r.queue) = p_queue)
       AND (p_name IS NULL OR r.name = p_name)
       AND (p_tag IS NULL OR r.tag = p_tag)
         AND (p_state IS NULL OR p_state = CASE WHEN r.attempt > 0 THEN 'retrying'
             ELSE 'scheduled' END)
       AND (p_error IS NULL OR r.last_error LIKE p_error) AND r.expires_at > clock_timestamp()
         AND r.scheduled_at < '9999-01-01Z'
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
           WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     ORDER BY r.scheduled_at, r.id LIMIT p_limit);
BEGIN
  IF cardinality(v_found) > 0 THEN
    PERFORM pg_advisory_xact_lock(1885893476, 2);
    RETURN QUERY SELECT * FROM posthaste.close_scheduled_6(v_found, 'available');
  END IF;
END $f$;
-- end

-- Locks of a transaction are held while its results are sent, and a frozen client reads none. From
-- here to the end of the transaction the server closes the connection of a client that reads
-- nothing for ten seconds. A Unix socket has no such timeout.
CREATE OR REPLACE FUNCTION posthaste.limit_send_time() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('tcp_user_timeout') = '0' THEN
    PERFORM set_config('tcp_user_timeout', '10s', true);
  END IF;
END $f$;

-- Runs jobs that wait for their time (scheduled, retrying) now, those due first; they keep their
-- counted attempts. All conditions that are not NULL must hold; error is a LIKE pattern. A
-- quarantined job's wait ends too, but it still runs alone. Returns a row for each matching job and
-- each id given: 'available' (waits for a worker), 'blocked' (for its turn), or its unchanged
-- state: 'running', 'awaiting', 'quarantined', 'completed', or the terminal state that redrive()
-- can undo. No row: an unknown job. Needs a separate READ COMMITTED transaction, because the
-- promoter waits until it ends.
CREATE OR REPLACE FUNCTION posthaste.retry(
  ids bigint[] DEFAULT NULL, queue text DEFAULT NULL, name text DEFAULT NULL, tag text DEFAULT NULL,
  state text DEFAULT NULL, error text DEFAULT NULL, at_most integer DEFAULT 1000)
RETURNS TABLE (job_id bigint, is_now text) LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_met posthaste.store[];
  v_roused bigint[];
BEGIN
  PERFORM posthaste.require_own_store();
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: retry needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.limit_send_time();
  v_met := ARRAY(SELECT r FROM posthaste.retry_6(ids, queue, name, tag, state, error, at_most) r);
  v_met := v_met
    || ARRAY(SELECT r
      FROM posthaste.retry_7(ids, queue, name, tag, state, error, at_most - cardinality(v_met)) r);
  RETURN QUERY SELECT j.id, CASE WHEN j.ordering_key IS NOT NULL AND j.turn IS NULL THEN 'blocked'
      ELSE 'available' END FROM unnest(v_met) j;
  WITH found AS (
    SELECT h.id FROM posthaste.in_flight h
     WHERE h.state = 'quarantined' AND (ids IS NULL OR h.id = ANY (ids))
       AND (queue IS NULL OR h.queue = queue) AND (name IS NULL OR h.name = name)
       AND (tag IS NULL OR h.tag = tag) AND (state IS NULL OR state = 'quarantined')
         AND (error IS NULL OR h.last_error LIKE error)
       AND h.until > clock_timestamp() LIMIT at_most - cardinality(v_met) FOR UPDATE SKIP LOCKED),
  roused AS (UPDATE posthaste.in_flight h SET until = clock_timestamp() FROM found f
      WHERE h.id = f.id RETURNING h.id)
  SELECT array_agg(r.id) INTO v_roused FROM roused r;
  RETURN QUERY SELECT u, 'quarantined' FROM unnest(v_roused) u;
  RETURN QUERY SELECT f.id, f.state
    FROM posthaste.find_many(
      ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(v_roused) EXCEPT SELECT j.id
        FROM unnest(v_met) j)) f;
END $f$;

-- A job of posthaste.dead as if enqueued again under the same id, with all its attempts, after all
-- others of its key.
CREATE OR REPLACE FUNCTION posthaste.redriven_job(d posthaste.dead, slot smallint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT pg_current_xact_id(), d.id, d.enqueued_at, clock_timestamp(),
         greatest(d.expires_at, clock_timestamp() + interval '30 days'),
         CASE WHEN d.ordering_key IS NULL THEN d.priority ELSE 0 END, 0, d.max_attempts,
         d.kwargs_bytes, slot, 0::smallint,
         CASE WHEN d.ordering_key IS NULL THEN d.queue ELSE '' END, d.name, d.tag, d.unique_key,
         d.ordering_key, NULL::bigint,
         CASE WHEN d.ordering_key IS NOT NULL THEN d.queue END,
         CASE WHEN d.ordering_key IS NOT NULL THEN d.priority END, d.last_error, d.trace, d.kwargs
$f$;

-- Runs dead, discarded, expired and cancelled jobs again, oldest first, in the caller's
-- transaction, and returns their ids. All conditions that are not NULL must hold; error is a LIKE
-- pattern. A job whose unique key another job holds stays where it is.
CREATE OR REPLACE FUNCTION posthaste.redrive(
  ids bigint[] DEFAULT NULL, queue text DEFAULT NULL, name text DEFAULT NULL, tag text DEFAULT NULL,
  state text DEFAULT NULL, error text DEFAULT NULL, at_most integer DEFAULT 1000)
RETURNS SETOF bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
BEGIN
  PERFORM posthaste.require_own_store();
  PERFORM posthaste.limit_send_time();
  RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT d.id, d.unique_key FROM posthaste.dead d
       WHERE (ids IS NULL OR d.id = ANY (ids)) AND (queue IS NULL OR d.queue = queue)
         AND (name IS NULL OR d.name = name)
         AND (tag IS NULL OR d.tag = tag) AND (state IS NULL OR d.state = state)
           AND (error IS NULL OR d.last_error LIKE error)
         AND NOT EXISTS (SELECT FROM posthaste.unique_key u WHERE u.key = d.unique_key)
       ORDER BY d.died_at, d.id LIMIT at_most FOR UPDATE SKIP LOCKED),
    keyed AS (
      INSERT INTO posthaste.unique_key AS u (key, id) SELECT f.unique_key, f.id FROM found f
        WHERE f.unique_key IS NOT NULL
       ORDER BY f.unique_key COLLATE "C"
      ON CONFLICT DO NOTHING RETURNING u.id),
    risen AS (
      DELETE FROM posthaste.dead d USING found f
       WHERE d.id = f.id AND (f.unique_key IS NULL OR f.id IN (SELECT k.id FROM keyed k))
         RETURNING d AS job),
    unmarked AS (DELETE FROM posthaste.cancelling c USING risen r WHERE c.id = (r.job).id),
    sent AS (
      INSERT INTO posthaste.store SELECT s.*
        FROM risen r, LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(
               CASE WHEN (r.job).ordering_key IS NULL THEN (r.job).queue ELSE '' END,
                 (SELECT posthaste.listeners())) AS slot OFFSET 0) e,
                 posthaste.redriven_job(r.job, e.slot) s
      RETURNING store.id)
    SELECT sent.id FROM sent;
END $f$;
