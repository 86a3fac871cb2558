-- Finds jobs by id.

-- The claim that contains a row, found by bisection: the first claim of its lane whose cursor is
-- after the row. NULL if the row is unclaimed.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.claim_of_0(r posthaste.store)
RETURNS posthaste.claim_0 LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_0;
  v_found posthaste.claim_0;
  v_bottom bigint := 0;  -- no claim below it contains the row
  v_top bigint;          -- nor does one between this and the one found
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_0 n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_0 n
      WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;
-- end

-- State and outcome of these rows.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.slot_row_0(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_0;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_0(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.job_done_0 a
          WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.batch_done_0 w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL
          WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                              WHEN r.queue = '' THEN 'blocked' ELSE 'available' END, v_outcome,
                              c.worker, c.claimed_at)::posthaste.slot_row;
  END LOOP;
END $f$;
-- end

-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.slot_row_6(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE sql STABLE AS $f$
  SELECT r, CASE WHEN e.id IS NOT NULL
                   OR posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                       p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted) THEN NULL
                 WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                   WHEN r.scheduled_at = '9999-01-01Z' THEN 'blocked'
                 WHEN r.attempt > 0 THEN 'retrying' ELSE 'scheduled' END,
         coalesce(e.outcome, 1::smallint), NULL::bigint, NULL::timestamptz
    FROM unnest(p_rows) r LEFT JOIN posthaste.closed_unclaimed_6 e ON e.xid = r.xid AND e.id = r.id
    LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
$f$;
-- end

-- Rows of a job at their expected place. Ids are drawn in about the order in which rows are stored,
-- except for promoted and moved jobs: the slot is bisected by the greatest id of a few pages, and
-- the pages around are read.
-- repeat: slots 0..7
CREATE OR REPLACE FUNCTION posthaste.rows_near_0(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 0 /*slot*/ < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 0 /*slot*/)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 0 /*slot*/ AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 0 /*slot*/ AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
-- end

-- Rows of these jobs in the slots. p_near: only of the first job, at its expected place.
CREATE OR REPLACE FUNCTION posthaste.slot_rows(p_ids bigint[], p_near boolean)
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- repeat: slots 0..7
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_0(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_0(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 0 /*slot*/ AND s.id = ANY (p_ids)) END);
  -- end
END $f$;

-- Finds these jobs in one snapshot. Those in flight, dead and retained are found by key. A job that
-- is in none of these tables, and that a slot does not list as dead, is completed.
CREATE OR REPLACE FUNCTION posthaste.find_in_snapshot(p_ids bigint[], p_near boolean)
RETURNS SETOF posthaste.found LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_left bigint[] := p_ids;
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(SELECT h.id FROM posthaste.in_flight h WHERE h.id = ANY (v_left));
  RETURN QUERY
    SELECT h.id, h.name, h.queue, h.priority, h.scheduled_at, h.expires_at, h.enqueued_at, h.tag,
           h.kwargs, h.unique_key, h.ordering_key, h.attempt, h.max_attempts,
           h.state, h.last_error, h.worker, w.name, NULL::timestamptz, NULL::timestamptz,
           h.trace
      FROM posthaste.in_flight h LEFT JOIN posthaste.worker w ON w.id = h.worker
        WHERE h.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  v_ids := ARRAY(SELECT d.id FROM posthaste.dead d WHERE d.id = ANY (v_left));
  RETURN QUERY
    SELECT d.id, d.name, d.queue, d.priority, d.scheduled_at, d.expires_at, d.enqueued_at, d.tag,
           d.kwargs, d.unique_key, d.ordering_key, d.attempt, d.max_attempts,
           d.state, d.last_error, NULL::bigint, NULL::text, NULL::timestamptz, d.died_at,
           d.trace
      FROM posthaste.dead d WHERE d.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  v_ids := ARRAY(SELECT f.id FROM posthaste.finished f WHERE f.id = ANY (v_left));
  RETURN QUERY
    SELECT f.id, f.name, f.queue, f.priority, f.scheduled_at, f.expires_at, f.enqueued_at, f.tag,
           f.kwargs, f.unique_key, f.ordering_key, f.attempt, f.max_attempts,
           'completed', f.last_error, f.worker, f.worker_name, NULL::timestamptz, f.ended_at,
           f.trace
      FROM posthaste.finished f WHERE f.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  IF cardinality(v_left) > 0 THEN
    -- The live row, else the one written last. Outcomes 2, 3 and 9 went to posthaste.dead, where
    -- the job was deleted since.
    RETURN QUERY
      SELECT (t.job).id, (t.job).name, coalesce((t.job).own_queue, (t.job).queue),
             coalesce((t.job).own_priority, (t.job).priority),
             CASE WHEN (t.job).scheduled_at = '9999-01-01Z' THEN (t.job).enqueued_at
                 ELSE (t.job).scheduled_at END, (t.job).expires_at, (t.job).enqueued_at,
             (t.job).tag,
             (t.job).kwargs, (t.job).unique_key, (t.job).ordering_key, (t.job).attempt,
             (t.job).max_attempts, coalesce(t.state, 'completed'), (t.job).last_error,
             t.worker, w.name, t.claimed_at, NULL::timestamptz, (t.job).trace
        FROM (SELECT DISTINCT ON ((s.job).id) s.job, s.state, s.outcome,
                     CASE WHEN s.state = 'running' OR s.outcome = 0 THEN s.worker END AS worker,
                     CASE WHEN s.state = 'running'
                         OR s.outcome = 0 THEN s.claimed_at END AS claimed_at
                FROM posthaste.slot_rows(v_left, p_near) s ORDER BY (s.job).id, s.state IS NULL,
                  (s.job).xid DESC) t
        LEFT JOIN posthaste.worker w ON w.id = t.worker
       WHERE t.state IS NOT NULL OR t.outcome NOT IN (2, 3, 9);
  END IF;
END $f$;

-- Finds jobs; no row for a job that is unknown or forgotten. A single job is searched at its
-- expected place first, then everywhere. Jobs that seem to be gone are searched again, because a
-- job that moves while a slot is truncated is invisible in that moment's snapshot.
CREATE OR REPLACE FUNCTION posthaste.find_many(ids bigint[])
RETURNS SETOF posthaste.found LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_left bigint[] := ids;
  v_found posthaste.found[];
  v_sure bigint[];
BEGIN
  FOR v_try IN CASE WHEN cardinality(ids) = 1 THEN 0 ELSE 1 END .. 2 LOOP
    v_found := ARRAY(SELECT l FROM posthaste.find_in_snapshot(v_left, v_try = 0) l);
    v_sure := ARRAY(SELECT f.id FROM unnest(v_found) f
        WHERE v_try = 2 OR f.state <> 'completed'
        OR coalesce(f.ended_at, f.claimed_at) IS NOT NULL);
    RETURN QUERY SELECT f.* FROM unnest(v_found) f WHERE f.id = ANY (v_sure);
    v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_sure));
    EXIT WHEN cardinality(v_left) = 0;
  END LOOP;
END $f$;

-- Finds one job. No index of a slot begins with the id, because every enqueue would pay for it. But
-- each slot has an index that contains it: if the job is not at its expected place, that index is
-- scanned.
CREATE OR REPLACE FUNCTION posthaste.find(job_id bigint)
RETURNS SETOF posthaste.found LANGUAGE sql
SET enable_seqscan = off SET enable_bitmapscan = off SET search_path = pg_catalog, pg_temp AS $f$
  SELECT * FROM posthaste.find_many(ARRAY[job_id])
$f$;
