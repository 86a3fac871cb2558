-- Maintenance: expiry. Jobs that expired wherever they wait, confirmations that never came, and what nobody needs any more.

DO $do$
BEGIN
  FOR k IN 0..5 LOOP
    EXECUTE replace($sql$

-- Finds jobs that expired unclaimed, and closes them early: claims skip such rows. Jobs that are running are left to their worker.
CREATE FUNCTION posthaste.expire_@k@(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_rows bigint;
  v_all bigint := 0;
BEGIN
  -- Each lane costs the transaction a lock. Any hundred of them: those whose expired jobs are running keep coming up and must not crowd out the others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_@k@ r
       WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)) lane
     ORDER BY random() LIMIT 100
  LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(v_lane.queue, v_lane.priority));
    WITH gone AS MATERIALIZED (
      SELECT r.* FROM posthaste.ready_@k@ r
        LEFT JOIN (SELECT * FROM posthaste.claim_@k@ WHERE queue = v_lane.queue AND priority = v_lane.priority
                    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1) c ON true
       WHERE r.queue = v_lane.queue AND r.priority = v_lane.priority AND r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id)
         AND (c.batch IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
              OR (pg_visible_in_snapshot(r.xid, c.hi) AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
       LIMIT p_limit),
    closed AS (INSERT INTO posthaste.ack_@k@ (xid, id, outcome) SELECT xid, id, 3 FROM gone),
    early AS (INSERT INTO posthaste.early_@k@ (xid, id) SELECT xid, id FROM gone),
    freed AS (DELETE FROM posthaste.unique_key u USING gone g WHERE u.key = g.unique_key AND u.id = g.id)
    INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
    SELECT id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, 'expired', queue, name, tag, unique_key, last_error, kwargs
      FROM gone ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_all := v_all + v_rows;
  END LOOP;
  RETURN v_all;
END $f$
$sql$, '@k@', k::text);
  END LOOP;
END $do$;

DO $do$
BEGIN
  FOR k IN 6..7 LOOP
    EXECUTE replace($sql$

-- The same for a parked slot.
CREATE FUNCTION posthaste.expire_@k@(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_rows bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id)
       AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted), false)
     LIMIT p_limit),
  early AS (INSERT INTO posthaste.early_@k@ (xid, id) SELECT xid, id FROM gone),
  freed AS (DELETE FROM posthaste.unique_key u USING gone g WHERE u.key = g.unique_key AND u.id = g.id)
  INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
  SELECT id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, 'expired', queue, name, tag, unique_key, last_error, kwargs
    FROM gone ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$
$sql$, '@k@', k::text);
  END LOOP;
END $do$;

-- Ends awaited jobs that are to be judged by p_until and whose confirmation is here: it was given by a transaction that could not see the job being held.
CREATE FUNCTION posthaste.confirm_held(p_until timestamptz, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_jobs bigint;
BEGIN
  WITH met AS (
    SELECT h.id FROM posthaste.held h WHERE h.state = 'awaiting' AND h.until <= p_until AND EXISTS (SELECT FROM posthaste.confirmed c WHERE c.id = h.id)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  ended AS (DELETE FROM posthaste.held h USING met WHERE h.id = met.id RETURNING h.id, h.unique_key),
  used AS (DELETE FROM posthaste.confirmed c USING met WHERE c.id = met.id),
  freed AS (DELETE FROM posthaste.unique_key u USING ended e WHERE u.key = e.unique_key AND u.id = e.id)
  SELECT count(*) INTO v_jobs FROM ended;
  RETURN v_jobs;
END $f$;

-- Awaited jobs that were not confirmed in time are tried again, which burns an attempt; held jobs that expired are kept as expired.
CREATE FUNCTION posthaste.overdue(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_jobs posthaste.store[];
  v_ids bigint[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.confirm_held(clock_timestamp(), p_limit);
  WITH late AS (
    SELECT h.id FROM posthaste.held h
     WHERE (h.state = 'awaiting' AND h.until <= clock_timestamp()) OR (h.state IN ('awaiting', 'suspect') AND h.expires_at <= clock_timestamp())
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  freed AS (
    DELETE FROM posthaste.held h USING late WHERE h.id = late.id
    RETURNING NULL::xid8 AS xid, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt, h.max_attempts, h.kwargs_bytes, (-1)::smallint AS slot, h.crashes,
              h.queue, h.name, h.tag, h.unique_key, h.last_error, h.kwargs)
  SELECT array_agg(ROW(freed.*)::posthaste.store), array_agg(freed.id) INTO v_jobs, v_ids FROM freed;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.dispose(v_jobs, v_ids,
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() OR j.attempt + 1 >= j.max_attempts THEN 2 ELSE 1 END::smallint FROM unnest(v_jobs) j),
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() THEN j.attempt ELSE j.attempt + 1 END FROM unnest(v_jobs) j),
    ARRAY(SELECT interval '0' FROM unnest(v_jobs) j), NULL,
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() THEN 'expired' ELSE 'dead' END FROM unnest(v_jobs) j),
    ARRAY(SELECT CASE WHEN j.expires_at <= clock_timestamp() THEN NULL ELSE 'it was not confirmed in time' END FROM unnest(v_jobs) j));
  RETURN cardinality(v_ids);
END $f$;

-- Finds expired jobs wherever they wait, without any consumer.
CREATE FUNCTION posthaste.expire(p_limit integer) RETURNS bigint LANGUAGE plpgsql SET jit = off AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.confirm_held('infinity', p_limit);
  RETURN posthaste.expire_0(p_limit) + posthaste.expire_1(p_limit) + posthaste.expire_2(p_limit) + posthaste.expire_3(p_limit)
       + posthaste.expire_4(p_limit) + posthaste.expire_5(p_limit) + posthaste.expire_6(p_limit) + posthaste.expire_7(p_limit);
END $f$;

-- Forgets confirmations that nobody asked for and workers that are long gone.
CREATE FUNCTION posthaste.prune() RETURNS void LANGUAGE sql AS $f$
  DELETE FROM posthaste.confirmed c WHERE c.confirmed_at < clock_timestamp() - interval '1 day' AND NOT EXISTS (SELECT FROM posthaste.held h WHERE h.id = c.id);
  DELETE FROM posthaste.worker w WHERE w.stopped_at < clock_timestamp() - interval '1 day' AND NOT EXISTS (SELECT FROM posthaste.held h WHERE h.worker = w.id)
$f$;
