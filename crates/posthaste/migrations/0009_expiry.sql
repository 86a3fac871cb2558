-- Maintenance: jobs that end where they wait, because they expired or were cancelled; confirmations that never came, and what nobody needs
-- any more.

-- Whether a row of a lane is behind its cursor, the newest claim row.
CREATE FUNCTION posthaste.is_claimed(xid xid8, id bigint, lo pg_snapshot, hi pg_snapshot, to_xid xid8, to_id bigint, exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT pg_visible_in_snapshot(xid, lo) OR (pg_visible_in_snapshot(xid, hi) AND (exhausted OR (xid, id) <= (to_xid, to_id)))
$f$;

CALL posthaste.each_slot(0, 5, $sql$

-- Closes jobs of a lane before they are claimed, and marks them: claims skip such rows. Those that expired, at most p_limit, or, where they
-- are named, those that were cancelled.
CREATE FUNCTION posthaste.close_early_@k@(p_queue text, p_priority integer, p_limit bigint, p_ids bigint[]) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_@k@;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_@k@ r
     WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp() ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  early AS (INSERT INTO posthaste.early_@k@ (xid, id) SELECT xid, id FROM gone),
  told AS (INSERT INTO posthaste.left_@k@ (xid, id, queue, priority, name, tag) SELECT xid, id, queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.ack_@k@ (xid, id, outcome) SELECT xid, id, CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.* FROM gone, posthaste.to_keep(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- Finds lanes of this slot with jobs that expired unclaimed, reading all of it without a lock, and closes those jobs. What is claimed is
-- left to its worker.
CREATE FUNCTION posthaste.expire_@k@(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs the transaction a lock. Any hundred of them: those whose claimers are busy must not crowd out the others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_@k@ r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid, to_id, exhausted
                     FROM posthaste.claim_@k@ ORDER BY queue, priority, batch DESC) c ON (c.queue, c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_early_@k@(v_lane.queue, v_lane.priority, p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$
$sql$);

CALL posthaste.each_slot(6, 7, $sql$
-- The same for parked jobs at these places: they are kept in this state, or sent to work at once where it is 'claimable'. Returns them.
-- Meanwhile some of them may have been promoted. The caller holds the promoter's lock.
CREATE FUNCTION posthaste.close_parked_@k@(p_places tid[], p_state text) RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  RETURN QUERY
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.ctid = ANY (p_places)
       AND NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE),
  early AS (
    INSERT INTO posthaste.early_@k@ (xid, id, outcome)
    SELECT xid, id, CASE p_state WHEN 'claimable' THEN 1 WHEN 'expired' THEN 3 ELSE 9 END FROM gone),
  told AS (
    INSERT INTO posthaste.left_@k@ (queue, priority, name, tag, what, jobs)
    SELECT coalesce(own_queue, queue), coalesce(own_priority, priority), name, tag, w.what, count(*)
      FROM gone, posthaste.wait_of(scheduled_at, attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
  sent AS (
    INSERT INTO posthaste.store
    SELECT a.*
      FROM gone, LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.ring_for(gone.queue, (SELECT posthaste.bell())) AS slot,
                                 clock_timestamp() AS now OFFSET 0) e, posthaste.again(gone, e.slot, e.now) a
     WHERE p_state = 'claimable'),
  kept AS (
    INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_keep(gone, p_state) d WHERE p_state <> 'claimable' ON CONFLICT (id) DO NOTHING)
  SELECT gone.* FROM gone;
END $f$;

-- Finds parked jobs that expired. Reading the slot takes long; the promoter is kept waiting only while what was found is closed.
CREATE FUNCTION posthaste.expire_@k@(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     LIMIT p_limit);
BEGIN
  IF cardinality(v_found) = 0 OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM posthaste.close_parked_@k@(v_found, 'expired'));
END $f$
$sql$);

-- Finds jobs that expired in one slot without any consumer, and keeps them as expired. One slot in a transaction, so that what is locked
-- for one of them does not stay locked while another is read.
CALL posthaste.by_slot(0, 7, $sql$
CREATE FUNCTION posthaste.expire(p_slot integer, p_limit integer) RETURNS bigint LANGUAGE plpgsql SET jit = off AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  CASE p_slot
    WHEN @k@ THEN RETURN posthaste.expire_@k@(p_limit);
  END CASE;
END $f$
$sql$);

-- Ends awaited jobs that are to be judged by p_until and whose confirmation is here: it was given by a transaction that could not see the
-- job being held.
CREATE FUNCTION posthaste.confirm_held(p_until timestamptz, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_jobs bigint;
  v_keys text[];
  v_turns bigint[];
BEGIN
  WITH met AS (
    SELECT h.id FROM posthaste.held h
     WHERE h.state = 'awaiting' AND h.until <= p_until AND EXISTS (SELECT FROM posthaste.confirmed c WHERE c.id = h.id)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  ended AS (DELETE FROM posthaste.held h USING met WHERE h.id = met.id RETURNING h.id, h.unique_key, h.ordering_key, h.turn, posthaste.let_go(h) AS job),
  finished AS (INSERT INTO posthaste.finished SELECT f.* FROM ended e, posthaste.to_finish(e.job, NULL) f),
  told AS (
    INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs)
    SELECT (e.job).queue, (e.job).priority, (e.job).name, (e.job).tag, 'done_total', 1 FROM ended e),
  used AS (DELETE FROM posthaste.confirmed c USING met WHERE c.id = met.id),
  freed AS (DELETE FROM posthaste.unique_key u USING ended e WHERE u.key = e.unique_key AND u.id = e.id)
  SELECT count(*), array_agg(e.ordering_key) FILTER (WHERE e.turn IS NOT NULL), array_agg(e.turn) FILTER (WHERE e.turn IS NOT NULL)
    INTO v_jobs, v_keys, v_turns FROM ended e;
  IF v_keys IS NOT NULL THEN
    PERFORM posthaste.end_turns(v_keys, v_turns);
  END IF;
  RETURN v_jobs;
END $f$;

-- Awaited jobs that were not confirmed in time are tried again, which burns an attempt; held jobs that expired are kept as expired.
CREATE FUNCTION posthaste.overdue(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_jobs posthaste.store[];
  v_ids bigint[];
  v_kinds smallint[];
  v_attempts integer[];
  v_states text[];
  v_errors text[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.confirm_held(clock_timestamp(), p_limit);
  WITH late AS (
    SELECT h.id FROM posthaste.held h
     WHERE (h.state = 'awaiting' AND h.until <= v_now) OR (h.state IN ('awaiting', 'suspect') AND h.expires_at <= v_now)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  freed AS (
    DELETE FROM posthaste.held h USING late WHERE h.id = late.id
    RETURNING h.id, posthaste.let_go(h) AS job, h.expires_at <= v_now AS has_expired, h.attempt + 1 AS attempt, h.max_attempts)
  SELECT array_agg(f.job), array_agg(f.id),
         array_agg(CASE WHEN f.has_expired OR f.attempt >= f.max_attempts THEN 2 ELSE 1 END::smallint),
         array_agg(CASE WHEN f.has_expired THEN f.attempt - 1 ELSE f.attempt END),
         array_agg(CASE WHEN f.has_expired THEN 'expired' ELSE 'dead' END),
         array_agg(CASE WHEN NOT f.has_expired THEN 'it was not confirmed in time' END)
    INTO v_jobs, v_ids, v_kinds, v_attempts, v_states, v_errors FROM freed f;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.dispose(v_jobs, v_ids, v_kinds, v_attempts, array_fill(interval '0', ARRAY[cardinality(v_ids)]), NULL, v_states, v_errors);
  PERFORM posthaste.note_attempts(v_jobs, NULL, v_ids, v_kinds, v_attempts, v_states, v_errors);
  RETURN cardinality(v_ids);
END $f$;

-- Forgets confirmations that nobody asked for and workers that are long gone.
CREATE FUNCTION posthaste.prune() RETURNS void LANGUAGE sql AS $f$
  DELETE FROM posthaste.confirmed c WHERE c.confirmed_at < clock_timestamp() - interval '1 day'
     AND NOT EXISTS (SELECT FROM posthaste.held h WHERE h.id = c.id);
  DELETE FROM posthaste.worker w WHERE w.stopped_at < clock_timestamp() - interval '1 day'
     AND NOT EXISTS (SELECT FROM posthaste.held h WHERE h.worker = w.id)
$f$;
