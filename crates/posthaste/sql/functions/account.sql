-- Counters, maintained by the leader: counts the jobs added since the newest marks
-- (functions/marks.sql).

-- Jobs of this slot that no sum includes yet, one row each.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.not_counted_0() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id
    FROM posthaste.lanes_0() l,
      LATERAL posthaste.rows_after_0(l.queue, l.priority, coalesce(l.m_lo, l.lo),
        coalesce(l.m_hi, l.hi), coalesce(l.m_xid, l.at_xid), coalesce(l.m_id, l.at_id),
        coalesce(l.m_exhausted, l.exhausted), '18446744073709551615', 0) r
   WHERE l.queue <> ''
$f$;
-- end
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.not_counted_6() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.newest_scheduled_mark_6() m, LATERAL posthaste.entered_since_6(m) r
$f$;
-- end

-- The number of jobs added since the newest marks, at most this many.
CREATE OR REPLACE FUNCTION posthaste.not_counted(most integer) RETURNS integer
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan integer[] := posthaste.scan_slots() || ARRAY[6, 7];
  v_slot integer;
  v_found integer := 0;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.used_slots() LOOP
    EXIT WHEN v_found >= most;
    CONTINUE WHEN NOT v_slot = ANY (v_scan);
    CASE v_slot
      -- repeat: slots 0..7
      WHEN 0 /*slot*/ THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_0() LIMIT most - v_found) r;
      -- end
    END CASE;
  END LOOP;
  RETURN v_found;
END $f$;

-- As not_counted(), but zero without a leader, which would count them. A lane with too few jobs to
-- be worth a mark may keep some uncounted.
CREATE OR REPLACE FUNCTION posthaste.uncounted(most integer) RETURNS integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE WHEN EXISTS (SELECT FROM posthaste.leader l
                            WHERE clock_timestamp() BETWEEN l.since AND l.until)
              THEN posthaste.not_counted(most) ELSE 0 END
$f$;

-- Shows whether there may be something to count: the number of rows written, by the server's
-- statistics. They lag by seconds, which only delays the counting; if they are off, any transaction
-- may have written something.
CREATE OR REPLACE FUNCTION posthaste.rows_written() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT concat(posthaste.segment_positions(), ' ', CASE
    WHEN current_setting('track_counts')::boolean THEN
      (SELECT sum(pg_stat_get_tuples_inserted(to_regclass('posthaste.' || t || '_' || k)))
         FROM unnest('{ready,claim,batch_done,job_done,scheduled,left,stats_delta}'::text[]) t,
           generate_series(0, 7) k)::text
    ELSE pg_current_snapshot()::text END)
$f$;

-- Run by the leader: counts new jobs, at most about p_limit. Returns NULL if there are more, else
-- the result of rows_written() before. The leader passes it as p_written next time: if nothing was
-- written since, nothing is read.
CREATE OR REPLACE FUNCTION posthaste.count_new_jobs(
  p_limit integer, p_step integer, p_bytes bigint, p_written text DEFAULT '')
RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan integer[] := posthaste.scan_slots();
  v_slot integer;
  v_counted bigint := 0;
  v_written text := posthaste.rows_written();
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR p_written = v_written
    OR NOT pg_try_advisory_xact_lock(1885893476, 6) THEN
    RETURN p_written;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  FOREACH v_slot IN ARRAY posthaste.used_slots() LOOP
    EXIT WHEN v_counted >= p_limit;
    CASE v_slot
      WHEN 6 THEN
        v_counted := v_counted + posthaste.count_scheduled_6((p_limit - v_counted)::integer,
          p_step);
      WHEN 7 THEN
        v_counted := v_counted + posthaste.count_scheduled_7((p_limit - v_counted)::integer,
          p_step);
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN PERFORM posthaste.mark_open_batches_0(least(p_step, 32));
      -- end
    END CASE;
    CONTINUE WHEN NOT v_slot = ANY (v_scan);
    CASE v_slot
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN
        v_counted := v_counted + posthaste.count_slot_0((p_limit - v_counted)::integer, p_step);
      -- end
    END CASE;
  END LOOP;
  PERFORM posthaste.sum_stats(p_step);
  PERFORM posthaste.rotate_stats(p_bytes);
  RETURN CASE WHEN v_counted < p_limit THEN v_written END;
END $f$;

-- Counts in those lanes of this slot that are worth a mark: lanes with at least p_step jobs after
-- their newest mark, or with rows that are slow to scan.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.count_slot_0(p_limit integer, p_step integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  l record;
  v_counted bigint := 0;
  v_started timestamptz;
BEGIN
  FOR l IN SELECT c.queue, c.priority, coalesce(c.m_lo, c.lo) AS lo, coalesce(c.m_hi, c.hi) AS hi,
                  coalesce(c.m_xid, c.at_xid) AS xid,
                  coalesce(c.m_id, c.at_id) AS id,
                  coalesce(c.m_exhausted, c.exhausted) AS exhausted,
                  greatest(p_step, 8 * coalesce(cardinality(c.jobs), 0)) AS step
             FROM posthaste.lanes_0() c WHERE c.queue <> ''
  LOOP
    v_started := clock_timestamp();
    PERFORM FROM posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.xid, l.id, l.exhausted,
        '18446744073709551615', 0) OFFSET l.step - 1 LIMIT 1;
    IF FOUND OR clock_timestamp() - v_started > interval '20 ms' THEN
      v_counted := v_counted + posthaste.count_lane_0(l.queue, l.priority,
          (p_limit - v_counted)::integer, p_step);
    END IF;
    EXIT WHEN v_counted >= p_limit;
  END LOOP;
  RETURN v_counted;
END $f$;
-- end
