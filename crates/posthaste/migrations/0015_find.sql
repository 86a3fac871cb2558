-- One job: where it is, by its number, and letting it run now.

-- A row of a job in a slot. state is NULL when the row is spent; outcome says then what became of the job there.
CREATE TYPE posthaste.trace AS (job posthaste.store, state text, outcome smallint, worker bigint, claimed_at timestamptz);

CALL posthaste.each_slot(0, 5, $sql$
-- The claim whose batch has a row of its lane: the first whose cursor is behind it, found by bisection. No batch: it was not claimed yet.
CREATE FUNCTION posthaste.claim_of_@k@(r posthaste.store) RETURNS posthaste.claim_@k@ LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_@k@;
  v_found posthaste.claim_@k@;
  v_bottom bigint := 0;  -- no claim below it has the row
  v_top bigint;          -- nor is there one between this and the found one
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_@k@ n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_@k@ n WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;

-- What became of these rows.
CREATE FUNCTION posthaste.trace_@k@(p_rows posthaste.store[]) RETURNS SETOF posthaste.trace LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_@k@;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_@k@(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.whole_@k@ w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'waiting' ELSE 'claimable' END, v_outcome, c.worker, c.claimed_at)::posthaste.trace;
  END LOOP;
END $f$
$sql$);

CALL posthaste.each_slot(6, 7, $sql$
CREATE FUNCTION posthaste.trace_@k@(p_rows posthaste.store[]) RETURNS SETOF posthaste.trace LANGUAGE sql STABLE AS $f$
  SELECT r, CASE WHEN e.id IS NOT NULL
                   OR posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted) THEN NULL
                 WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.scheduled_at = '9999-01-01Z' THEN 'waiting'
                 WHEN r.attempt > 0 THEN 'retrying' ELSE 'scheduled' END,
         coalesce(e.outcome, 1::smallint), NULL::bigint, NULL::timestamptz
    FROM unnest(p_rows) r LEFT JOIN posthaste.early_@k@ e ON e.xid = r.xid AND e.id = r.id
    LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
$f$
$sql$);

CALL posthaste.each_slot(0, 7, $sql$
-- Rows of a job where they are to be expected. Numbers are drawn in about the order in which rows come to lie, except of what was promoted or moved: a
-- slot is bisected by the greatest number of a few pages, and the pages around are read.
CREATE FUNCTION posthaste.near_@k@(p_id bigint) RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint := pg_relation_size(('posthaste.' || CASE WHEN @k@ < 6 THEN 'ready_' ELSE 'parked_' END || @k@)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s WHERE s.slot = @k@ AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s WHERE s.slot = @k@ AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$
$sql$);

-- What the slots know of jobs: of the first, by rows that lie where they are to be expected, or of all of them, by all rows.
CALL posthaste.by_slot(0, 7, $sql$
CREATE FUNCTION posthaste.traces(p_ids bigint[], p_near boolean) RETURNS SETOF posthaste.trace LANGUAGE plpgsql STABLE AS $f$
BEGIN
  RETURN QUERY SELECT * FROM posthaste.trace_@k@(CASE WHEN p_near THEN ARRAY(SELECT n FROM posthaste.near_@k@(p_ids[1]) n) ELSE ARRAY(SELECT s FROM posthaste.store s WHERE s.slot = @k@ AND s.id = ANY (p_ids)) END);
END $f$
$sql$);

-- A job that was looked for. claimed_at and worker: since when, and with whom, it runs or ran last; ended_at: when it was done or given up. Of a done
-- job that its queue does not keep, ended_at is not known.
CREATE TYPE posthaste.found AS (
  id bigint, name text, queue text, priority integer, scheduled_at timestamptz, expires_at timestamptz, enqueued_at timestamptz, tag text, kwargs jsonb,
  unique_key text, ordering_key text, attempt integer, max_attempts integer, state text, last_error text, worker bigint, worker_name text, claimed_at timestamptz,
  ended_at timestamptz
);

-- Where these jobs are, in one snapshot. Held, kept and finished ones are found by their keys. A job that is nowhere, and of which a slot knows that it
-- was not given up, is done.
CREATE FUNCTION posthaste.look_for(p_ids bigint[], p_near boolean) RETURNS SETOF posthaste.found LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_left bigint[] := p_ids;
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(SELECT h.id FROM posthaste.held h WHERE h.id = ANY (v_left));
  RETURN QUERY
    SELECT h.id, h.name, h.queue, h.priority, h.scheduled_at, h.expires_at, h.enqueued_at, h.tag, h.kwargs, h.unique_key, h.ordering_key, h.attempt, h.max_attempts,
           h.state, h.last_error, h.worker, w.name, NULL::timestamptz, NULL::timestamptz
      FROM posthaste.held h LEFT JOIN posthaste.worker w ON w.id = h.worker WHERE h.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  v_ids := ARRAY(SELECT d.id FROM posthaste.dead d WHERE d.id = ANY (v_left));
  RETURN QUERY
    SELECT d.id, d.name, d.queue, d.priority, d.scheduled_at, d.expires_at, d.enqueued_at, d.tag, d.kwargs, d.unique_key, d.ordering_key, d.attempt, d.max_attempts,
           d.state, d.last_error, NULL::bigint, NULL::text, NULL::timestamptz, d.died_at
      FROM posthaste.dead d WHERE d.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  v_ids := ARRAY(SELECT f.id FROM posthaste.finished f WHERE f.id = ANY (v_left));
  RETURN QUERY
    SELECT f.id, f.name, f.queue, f.priority, f.scheduled_at, f.expires_at, f.enqueued_at, f.tag, f.kwargs, f.unique_key, f.ordering_key, f.attempt, f.max_attempts,
           'done', f.last_error, f.worker, f.worker_name, NULL::timestamptz, f.ended_at
      FROM posthaste.finished f WHERE f.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  IF cardinality(v_left) > 0 THEN
    -- Where it lives, else the row that was written last: outcomes 2, 3 and 9 left for posthaste.dead, and somebody deleted it there.
    RETURN QUERY
      SELECT (t.job).id, (t.job).name, coalesce((t.job).own_queue, (t.job).queue), coalesce((t.job).own_priority, (t.job).priority),
             CASE WHEN (t.job).scheduled_at = '9999-01-01Z' THEN (t.job).enqueued_at ELSE (t.job).scheduled_at END, (t.job).expires_at, (t.job).enqueued_at, (t.job).tag,
             (t.job).kwargs, (t.job).unique_key, (t.job).ordering_key, (t.job).attempt, (t.job).max_attempts, coalesce(t.state, 'done'), (t.job).last_error,
             t.worker, w.name, t.claimed_at, NULL::timestamptz
        FROM (SELECT DISTINCT ON ((s.job).id) s.job, s.state, s.outcome,
                     CASE WHEN s.state = 'running' OR s.outcome = 0 THEN s.worker END AS worker,
                     CASE WHEN s.state = 'running' OR s.outcome = 0 THEN s.claimed_at END AS claimed_at
                FROM posthaste.traces(v_left, p_near) s ORDER BY (s.job).id, s.state IS NULL, (s.job).xid DESC) t
        LEFT JOIN posthaste.worker w ON w.id = t.worker
       WHERE t.state IS NOT NULL OR t.outcome NOT IN (2, 3, 9);
  END IF;
END $f$;

-- Where jobs are. No row for a job that is not known any more, or never was. A single one is looked for where it is to be expected; what is not there is
-- looked for everywhere; and what seems to be gone once more, because a job that moved while a slot was being truncated is nowhere in that
-- moment's snapshot.
CREATE FUNCTION posthaste.find_many(ids bigint[]) RETURNS SETOF posthaste.found LANGUAGE plpgsql SET jit = off SET plan_cache_mode = force_custom_plan AS $f$
DECLARE
  v_left bigint[] := ids;
  v_found posthaste.found[];
  v_sure bigint[];
BEGIN
  FOR v_try IN CASE WHEN cardinality(ids) = 1 THEN 0 ELSE 1 END .. 2 LOOP
    v_found := ARRAY(SELECT l FROM posthaste.look_for(v_left, v_try = 0) l);
    v_sure := ARRAY(SELECT f.id FROM unnest(v_found) f WHERE v_try = 2 OR f.state <> 'done' OR coalesce(f.ended_at, f.claimed_at) IS NOT NULL);
    RETURN QUERY SELECT f.* FROM unnest(v_found) f WHERE f.id = ANY (v_sure);
    v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_sure));
    EXIT WHEN cardinality(v_left) = 0;
  END LOOP;
END $f$;

-- One job. No index of a slot begins with the number, because each would be paid for by every enqueue. But each slot has one that contains it: where the
-- job does not lie where it is to be expected, that index is read from end to end.
CREATE FUNCTION posthaste.find(job_id bigint) RETURNS SETOF posthaste.found LANGUAGE sql SET enable_seqscan = off SET enable_bitmapscan = off AS $f$
  SELECT * FROM posthaste.find_many(ARRAY[job_id])
$f$;

CALL posthaste.each_slot(6, 7, $sql$
-- Parked jobs that are meant, at most so many, those that are due first; not those that wait for their turn. Reading the slot takes long; the promoter is kept waiting only while what was
-- found is closed.
CREATE FUNCTION posthaste.retry_@k@(p_ids bigint[], p_queue text, p_name text, p_tag text, p_state text, p_error text, p_limit bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
     WHERE (p_ids IS NULL OR r.id = ANY (p_ids)) AND (p_queue IS NULL OR coalesce(r.own_queue, r.queue) = p_queue) AND (p_name IS NULL OR r.name = p_name)
       AND (p_tag IS NULL OR r.tag = p_tag) AND (p_state IS NULL OR p_state = CASE WHEN r.attempt > 0 THEN 'retrying' ELSE 'scheduled' END)
       AND (p_error IS NULL OR r.last_error LIKE p_error) AND r.expires_at > clock_timestamp() AND r.scheduled_at < '9999-01-01Z'
       AND NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     ORDER BY r.scheduled_at, r.id LIMIT p_limit);
BEGIN
  IF cardinality(v_found) > 0 THEN
    PERFORM pg_advisory_xact_lock(1885893476, 2);
    RETURN QUERY SELECT * FROM posthaste.close_parked_@k@(v_found, 'claimable');
  END IF;
END $f$
$sql$);

-- Lets jobs that wait for their time (scheduled, retrying) run now, those that were due first; they keep the attempts that they have burnt. All
-- conditions that are not NULL must hold; error is a pattern of LIKE. A suspect's wait ends too; it is run alone still. Answers for each job that it
-- met or that ids name: 'claimable' (it waits for a worker), 'waiting' (for its turn), else where it is and stays: 'running', 'awaiting', 'suspect', 'done', or how it was
-- given up, which redrive() can undo. No row: it is not known. One transaction of its own, READ COMMITTED, because the promoter waits for its end.
CREATE FUNCTION posthaste.retry(ids bigint[] DEFAULT NULL, queue text DEFAULT NULL, name text DEFAULT NULL, tag text DEFAULT NULL,
                                state text DEFAULT NULL, error text DEFAULT NULL, at_most integer DEFAULT 1000)
RETURNS TABLE (job_id bigint, is_now text) LANGUAGE plpgsql SET jit = off SET plan_cache_mode = force_custom_plan AS $f$
#variable_conflict use_variable
DECLARE
  v_met posthaste.store[];
  v_roused bigint[];
BEGIN
  PERFORM posthaste.require_home();
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: retry needs READ COMMITTED, not %', current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  v_met := ARRAY(SELECT r FROM posthaste.retry_6(ids, queue, name, tag, state, error, at_most) r);
  v_met := v_met || ARRAY(SELECT r FROM posthaste.retry_7(ids, queue, name, tag, state, error, at_most - cardinality(v_met)) r);
  RETURN QUERY SELECT j.id, CASE WHEN j.ordering_key IS NOT NULL AND j.turn IS NULL THEN 'waiting' ELSE 'claimable' END FROM unnest(v_met) j;
  WITH found AS (
    SELECT h.id FROM posthaste.held h
     WHERE h.state = 'suspect' AND (ids IS NULL OR h.id = ANY (ids)) AND (queue IS NULL OR h.queue = queue) AND (name IS NULL OR h.name = name)
       AND (tag IS NULL OR h.tag = tag) AND (state IS NULL OR state = 'suspect') AND (error IS NULL OR h.last_error LIKE error)
       AND h.until > clock_timestamp() LIMIT at_most - cardinality(v_met) FOR UPDATE SKIP LOCKED),
  roused AS (UPDATE posthaste.held h SET until = clock_timestamp() FROM found f WHERE h.id = f.id RETURNING h.id)
  SELECT array_agg(r.id) INTO v_roused FROM roused r;
  RETURN QUERY SELECT u, 'suspect' FROM unnest(v_roused) u;
  RETURN QUERY SELECT f.id, f.state FROM posthaste.find_many(ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(v_roused) EXCEPT SELECT j.id FROM unnest(v_met) j)) f;
END $f$;
