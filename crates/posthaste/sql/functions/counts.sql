-- Counters, read: the newest sums plus the rows added since (functions/marks.sql). The lanes of
-- this slot: the cursor of their claims, and the newest mark unless the claims have passed it.
-- Separate columns: each field of a composite would be fetched again for each row compared with it.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.lanes_0(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean, OUT run bigint, OUT m_lo pg_snapshot,
  OUT m_hi pg_snapshot, OUT m_xid xid8, OUT m_id bigint, OUT m_exhausted boolean, OUT names text[],
  OUT tags text[], OUT jobs bigint[])
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  SELECT c.queue, c.priority, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted, m.run, m.lo, m.hi,
         m.at_xid, m.at_id, m.exhausted, m.names, m.tags, m.jobs
    FROM posthaste.cursors_0() c LEFT JOIN LATERAL (
      SELECT n.*,
             posthaste.mark_passed(n.max_xid, n.max_id, n.hi, c.lo, c.hi, c.at_xid, c.at_id,
          c.exhausted) AS passed
        FROM posthaste.counted_0 n WHERE n.queue = c.queue AND n.priority = c.priority
       ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
         n.number DESC LIMIT 1) m ON NOT m.passed
$f$;
-- end

-- Jobs that wait for a worker. If a lane has a mark that its claims have not passed: the difference
-- between that mark and the last one they have passed, minus the jobs claimed since, plus the jobs
-- added since, at most p_most.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.available_0(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cursor AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.exhausted THEN pg_snapshot_xmax(l.hi)
        ELSE greatest(l.at_xid, pg_snapshot_xmax(l.lo)) END AS end_xid,
           CASE WHEN l.exhausted OR l.at_xid < pg_snapshot_xmax(l.lo) THEN -1
               ELSE l.at_id END AS end_id
      FROM posthaste.lanes_0() l),
  lane AS MATERIALIZED (
    SELECT l.*, p.run AS p_run, p.lo AS p_lo, p.hi AS p_hi, p.at_xid AS p_xid, p.at_id AS p_id,
           p.exhausted AS p_exhausted,
           p.names AS p_names, p.tags AS p_tags, p.jobs AS p_jobs
      FROM cursor l LEFT JOIN LATERAL (
        SELECT * FROM posthaste.counted_0 n
         WHERE n.queue = l.queue AND n.priority = l.priority AND n.run = l.run
           AND (n.max_xid, n.max_id) <= (l.end_xid, l.end_id)
           AND (n.number = n.run
               OR posthaste.mark_passed(n.max_xid, n.max_id, n.hi, l.lo, l.hi, l.at_xid, l.at_id,
                 l.exhausted))
         ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
           n.number DESC LIMIT 1) p ON l.run IS NOT NULL),
  fresh AS MATERIALIZED (
    SELECT f.queue, f.priority, f.name, f.tag, f.what, count(*) AS jobs FROM (
      -- Jobs that are not yet ordered: a lane that the leader keeps short.
      SELECT coalesce(r.own_queue, r.queue) AS queue,
             coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag, 'blocked' AS what
        FROM lane l,
          LATERAL posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue = '' AND r.turn IS NULL
         AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
           WHERE e.xid = r.xid AND e.id = r.id)
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue <> '' AND l.run IS NULL
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_0(l.queue, l.priority, l.m_lo, l.m_hi, l.m_xid, l.m_id,
            l.m_exhausted, '18446744073709551615', 0) r
       WHERE l.run IS NOT NULL
         AND NOT posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
      LIMIT p_most) f
     GROUP BY f.queue, f.priority, f.name, f.tag, f.what)
  SELECT f.queue, f.priority, f.name, f.tag, f.what, f.jobs FROM fresh f WHERE f.what = 'blocked'
  UNION ALL
  SELECT a.queue, a.priority, a.name, a.tag, 'available', sum(a.jobs)::bigint FROM (
    SELECT f.queue, f.priority, f.name, f.tag, f.jobs FROM fresh f WHERE f.what = 'available'
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, u.jobs
      FROM lane l, LATERAL unnest(l.names, l.tags, l.jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, -u.jobs
      FROM lane l, LATERAL unnest(l.p_names, l.p_tags, l.p_jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, r.name, r.tag, -1
      FROM lane l,
        LATERAL posthaste.rows_after_0(l.queue, l.priority, l.p_lo, l.p_hi, l.p_xid, l.p_id,
          l.p_exhausted, l.end_xid, l.end_id) r
     -- mutant: claims after a mark are not subtracted: WHERE false
     WHERE l.p_run IS NOT NULL
       AND posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
       AND posthaste.is_claimed(r.xid, r.id, l.m_lo, l.m_hi, l.m_xid, l.m_id, l.m_exhausted)
    UNION ALL
    SELECT l.queue, l.priority, e.name, e.tag, -1
      FROM lane l,
        LATERAL (SELECT * FROM posthaste.left_0 n
          WHERE n.queue = l.queue AND n.priority = l.priority OFFSET 0) e
     WHERE NOT posthaste.is_claimed(e.xid, e.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)) a
   GROUP BY a.queue, a.priority, a.name, a.tag HAVING sum(a.jobs) <> 0;
END $f$;
-- end

-- Running jobs.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.count_running_0()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.queue, r.priority, r.name, r.tag, 'running', count(*)
    FROM posthaste.claimed_lanes_0() l,
         LATERAL posthaste.possibly_open_0(l.queue, l.priority) b(batch),
         LATERAL (SELECT c.token FROM posthaste.claim_0 c WHERE c.batch = b.batch OFFSET 0) c,
         LATERAL posthaste.batch_rows_0(b.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY r.queue, r.priority, r.name, r.tag;
END $f$;
-- end

-- Since when the next job of each lane could have been claimed.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.oldest_0()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT l.queue, l.priority, r.since
    FROM posthaste.cursors_0() l, LATERAL (
      SELECT greatest(r.scheduled_at, r.enqueued_at) AS since
        FROM posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted,
            '18446744073709551615', 0) r
       WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
           WHERE e.xid = r.xid AND e.id = r.id) LIMIT 1) r
   WHERE l.queue <> '';
END $f$;
-- end

-- Jobs that are not due yet; of those added after the newest mark at most p_most.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.not_due_6(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
DECLARE
  m posthaste.counted_6 := posthaste.newest_scheduled_mark_6();
BEGIN
  RETURN QUERY
  SELECT a.queue, a.priority, a.name, a.tag, a.what, sum(a.jobs)::bigint
    FROM (SELECT *
        FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs) u(queue, priority,
          name, tag, what, jobs) UNION ALL
          (SELECT coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), r.name,
                  r.tag, posthaste.wait_kind(r.scheduled_at, r.attempt), 1
             FROM posthaste.entered_since_6(m) r LIMIT p_most) UNION ALL
          SELECT r.queue, r.priority, r.name, r.tag, r.what, -r.jobs
            FROM posthaste.left_since_6(m.left_hi) r) a
   GROUP BY a.queue, a.priority, a.name, a.tag, a.what HAVING sum(a.jobs) <> 0;
END $f$;
-- end

-- Slots that may hold running jobs: all that are not truncated.
CREATE OR REPLACE FUNCTION posthaste.used_slots() RETURNS integer[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT ARRAY(SELECT 4 + g % 2 FROM generate_series(r.overflow_low, r.overflow_current) g
      WHERE r.overflow_scan <= r.overflow_current OR g < r.overflow_current
                OR pg_relation_size(('posthaste.ready_' || 4 + g % 2)::regclass) > 0
               UNION ALL SELECT g % 4 FROM generate_series(r.ready_low, r.ready_current) g
               UNION ALL SELECT 6 + g % 2
                 FROM generate_series(r.scheduled_low, r.scheduled_current) g)::integer[]
    FROM posthaste.segments() r
$f$;

-- All current counts, one row each; at most p_most rows of each slot are read after the newest
-- marks.
CREATE OR REPLACE FUNCTION posthaste.count_within(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan integer[] := posthaste.scan_slots();
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.used_slots() LOOP
    CASE v_slot
      WHEN 6 THEN RETURN QUERY SELECT * FROM posthaste.not_due_6(p_most);
      WHEN 7 THEN RETURN QUERY SELECT * FROM posthaste.not_due_7(p_most);
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN RETURN QUERY SELECT * FROM posthaste.count_running_0();
      -- end
    END CASE;
    CONTINUE WHEN NOT v_slot = ANY (v_scan);
    CASE v_slot
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN RETURN QUERY SELECT * FROM posthaste.available_0(p_most);
      -- end
    END CASE;
  END LOOP;
  RETURN QUERY SELECT * FROM posthaste.stats();
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_all()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $f$
  SELECT * FROM posthaste.count_within(NULL)
$f$;

-- The positions of the segments. If one changes during a read, the read may have missed jobs that
-- moved from one segment to another.
CREATE OR REPLACE FUNCTION posthaste.segment_positions() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT concat(r, pg_sequence_last_value('posthaste.stats_low'::regclass))
    FROM posthaste.segments() r
$f$;

-- The number of jobs of each kind by state, and totals since the beginning. At most p_most jobs of
-- each slot that no mark includes yet are counted: gauges are too low while posthaste.not_counted
-- finds more.
CREATE OR REPLACE FUNCTION posthaste.counts_within(p_most integer)
RETURNS SETOF posthaste.counts LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_at text; v_kinds posthaste.kind[];
BEGIN
  FOR v_try IN 1 .. 3 LOOP
    v_at := posthaste.segment_positions();
    -- Sums come first, so that uncounted jobs do not take their space.
    v_kinds := ARRAY(
      SELECT ROW(c.queue, c.priority, c.name, c.tag, c.what, CASE
               -- An uncounted job may have left as well.
               WHEN p_most IS NOT NULL THEN greatest(sum(c.jobs), 0)
               ELSE sum(c.jobs) END::bigint)::posthaste.kind
        FROM posthaste.count_within(p_most) c GROUP BY c.queue, c.priority, c.name, c.tag, c.what
      HAVING sum(c.jobs) <> 0
       ORDER BY c.what LIKE '%\_total' DESC, c.queue, c.priority, c.name, c.tag);
    EXIT WHEN v_at = posthaste.segment_positions();
  END LOOP;
  IF cardinality(v_kinds) > 1000 OR EXISTS (SELECT FROM unnest(v_kinds) k WHERE k.jobs < 0) THEN
    v_kinds := ARRAY(SELECT k FROM posthaste.limit_kinds(v_kinds, true) k);
  END IF;
  RETURN QUERY SELECT c.queue, c.priority, c.name, c.tag,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'available'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'blocked'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'scheduled'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'retrying'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'running'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'awaiting'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'quarantined'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'dead'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'discarded'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'expired'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'cancelled'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'completed_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'failed_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'retried_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'dead_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'discarded_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'expired_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'cancelled_total'), 0)::bigint
    FROM unnest(v_kinds) c WHERE c.what <> ALL ('{started_total,waited_total}') GROUP BY 1, 2, 3, 4;
END $f$;

-- The same without a limit.
CREATE OR REPLACE FUNCTION posthaste.counts() RETURNS SETOF posthaste.counts LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT * FROM posthaste.counts_within(NULL)
$f$;

-- Since when the next job of each queue and priority could have been claimed: due, enqueued and
-- unclaimed.
CREATE OR REPLACE FUNCTION posthaste.oldest()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY SELECT o.queue, o.priority, min(o.since) FROM (
    -- repeat: slots 0..5
    SELECT x.* FROM posthaste.oldest_0() x WHERE 0 /*slot*/ = ANY (posthaste.scan_slots()) UNION ALL
    -- end
    SELECT NULL, NULL, NULL WHERE false) o GROUP BY o.queue, o.priority;
END $f$;
