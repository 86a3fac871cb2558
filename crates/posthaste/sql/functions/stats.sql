-- Statistics: deltas and their sums, of jobs outside the slots.

-- The newest sums, or empty ones.
CREATE OR REPLACE FUNCTION posthaste.newest_stats_sum()
RETURNS posthaste.stats_sum LANGUAGE sql STABLE AS $f$
  SELECT n
    FROM ((SELECT t AS n, t.number FROM posthaste.stats_sum t ORDER BY t.number DESC LIMIT 1)
      UNION ALL
                 SELECT ROW(0, 0, '1:1:', '{}', '{}', '{}', '{}', '{}', '{}')::posthaste.stats_sum,
                        0) newest
   ORDER BY number DESC LIMIT 1
$f$;

-- Deltas that are not in the sums of that snapshot.
CREATE OR REPLACE FUNCTION posthaste.stats_deltas_since(p_hi pg_snapshot)
RETURNS SETOF posthaste.stats_delta LANGUAGE sql STABLE AS $f$
  SELECT late.*
    FROM pg_snapshot_xip(p_hi) p,
         LATERAL (SELECT t.* FROM posthaste.stats_delta t WHERE t.xid = p OFFSET 0) late UNION ALL
  SELECT t.* FROM posthaste.stats_delta t WHERE t.xid >= pg_snapshot_xmax(p_hi)
$f$;

-- Tracks jobs that enter, change in or leave posthaste.in_flight and posthaste.dead.
CREATE OR REPLACE FUNCTION posthaste.track_stats() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT o.queue, o.priority, o.name, o.tag, o.state, -count(*) FROM old_rows o
      GROUP BY o.queue, o.priority, o.name, o.tag, o.state;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT n.queue, n.priority, n.name, n.tag, n.state, count(*) FROM new_rows n
      GROUP BY n.queue, n.priority, n.name, n.tag, n.state;
  END IF;
  IF TG_OP = 'INSERT' AND TG_TABLE_NAME = 'dead' THEN
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT n.queue, n.priority, n.name, n.tag, n.state || '_total', count(*) FROM new_rows n
      GROUP BY n.queue, n.priority, n.name, n.tag, n.state;
  END IF;
  RETURN NULL;
END $f$;

-- Writes the counts of a worker since its last flush.
CREATE OR REPLACE FUNCTION posthaste.flush_stats(
  p_queues text[], p_priorities integer[], p_names text[], p_tags text[], p_whats text[],
  p_jobs bigint[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs) SELECT *
    FROM unnest(p_queues, p_priorities, p_names, p_tags, p_whats, p_jobs)
$f$;

-- Limits the number of kinds of jobs: a thousand for each queue and state or total, twenty thousand
-- together, in the order of their appearance. Further kinds are counted under the tag 'other',
-- beyond as many names under the name 'other', and totals beyond as many priorities under priority
-- 0. So unique tags or names never make the counters slow, and the figures of a queue and priority
-- stay exact. If everything that is subtracted had been counted (p_whole), a negative count belongs
-- to a kind counted under 'other'.
CREATE OR REPLACE FUNCTION posthaste.limit_kinds(p_kinds posthaste.kind[], p_whole boolean)
RETURNS SETOF posthaste.kind LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
  WITH kinds AS (
    SELECT k.queue, k.priority, k.name, k.tag, k.what, sum(k.jobs) AS jobs, min(k.place) AS place
      FROM unnest(p_kinds) WITH ORDINALITY k(queue, priority, name, tag, what, jobs, place)
     GROUP BY k.queue, k.priority, k.name, k.tag, k.what HAVING sum(k.jobs) <> 0),
  tags AS (
    SELECT k.queue, k.priority, k.name, CASE WHEN k.is_surplus THEN 'other' ELSE k.tag END AS tag,
           k.what, sum(k.jobs) AS jobs, min(k.place) AS place
      FROM (SELECT n.*, (p_whole AND n.jobs < 0)
                   OR row_number() OVER (PARTITION BY n.tag = 'other', n.queue, n.what
                                             ORDER BY n.place) > 1000
                   OR row_number() OVER (PARTITION BY n.tag = 'other'
                                             ORDER BY n.place) > 20000 AS is_surplus
              FROM kinds n) k
     GROUP BY 1, 2, 3, 4, 5),
  names AS (
    SELECT k.queue, k.priority, CASE WHEN k.is_surplus THEN 'other' ELSE k.name END AS name, k.tag,
           k.what, sum(k.jobs) AS jobs, min(k.place) AS place
      FROM (SELECT n.*, n.tag = 'other' AND ((p_whole AND n.jobs < 0)
                   OR row_number() OVER (PARTITION BY n.tag = 'other', n.name = 'other', n.queue,
                                             n.what ORDER BY n.place) > 1000
                   OR row_number() OVER (PARTITION BY n.tag = 'other', n.name = 'other'
                                             ORDER BY n.place) > 20000) AS is_surplus
              FROM tags n) k
     GROUP BY 1, 2, 3, 4, 5)
  SELECT k.queue, CASE WHEN k.is_surplus THEN 0 ELSE k.priority END, k.name, k.tag, k.what,
         sum(k.jobs)::bigint
    FROM (SELECT n.*, n.tag = 'other' AND n.name = 'other' AND n.what LIKE '%\_total'
                 AND row_number() OVER (PARTITION BY n.tag, n.name, n.queue, n.what
                                            ORDER BY n.priority = 0 DESC, n.place) > 1000
                 AS is_surplus
            FROM names n) k
   GROUP BY 1, 2, 3, 4, 5 HAVING sum(k.jobs) <> 0
$f$;

-- The kinds of some sums.
CREATE OR REPLACE FUNCTION posthaste.kinds_of(
  p_queues text[], p_priorities integer[], p_names text[], p_tags text[], p_whats text[],
  p_jobs bigint[])
RETURNS posthaste.kind[] LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT ARRAY(SELECT ROW(u.*)::posthaste.kind
      FROM unnest(p_queues, p_priorities, p_names, p_tags, p_whats, p_jobs) u)
$f$;

-- These sums and the deltas since, of those visible in that snapshot, or all. With too many kinds
-- at once, deltas lose their tags and names here: all of them are in memory.
CREATE OR REPLACE FUNCTION posthaste.kinds_since(m posthaste.stats_sum, p_hi pg_snapshot)
RETURNS posthaste.kind[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  WITH kinds AS (
    SELECT t.queue, t.priority, t.name, t.tag, t.what, sum(t.jobs) AS jobs,
           row_number() OVER (ORDER BY min(t.xid)) AS place
      FROM posthaste.stats_deltas_since(m.hi) t
     WHERE p_hi IS NULL OR pg_visible_in_snapshot(t.xid, p_hi)
     GROUP BY t.queue, t.priority, t.name, t.tag, t.what),
  tags AS (
    SELECT k.queue, k.priority, k.name,
           CASE WHEN k.place > 40000 THEN 'other' ELSE k.tag END AS tag, k.what,
           sum(k.jobs) AS jobs, row_number() OVER (ORDER BY min(k.place)) AS place
      FROM kinds k GROUP BY 1, 2, 3, 4, 5),
  names AS (
    SELECT k.queue, k.priority, CASE WHEN k.place > 60000 THEN 'other' ELSE k.name END AS name,
           k.tag, k.what, sum(k.jobs)::bigint AS jobs, min(k.place) AS place
      FROM tags k GROUP BY 1, 2, 3, 4, 5)
  SELECT posthaste.kinds_of(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs)
    || ARRAY(SELECT ROW(n.queue, n.priority, n.name, n.tag, n.what, n.jobs)::posthaste.kind
               FROM names n ORDER BY n.place)
$f$;

-- Adds up the deltas since the last sums if there are at least p_step, and twice as many as sums.
CREATE OR REPLACE FUNCTION posthaste.sum_stats(p_step integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  m posthaste.stats_sum := posthaste.newest_stats_sum();
  v_hi pg_snapshot := posthaste.cursor_snapshot();
  v_new bigint := (SELECT count(*) FROM posthaste.stats_deltas_since(m.hi) t
      WHERE pg_visible_in_snapshot(t.xid, v_hi));
BEGIN
  IF p_step > 0 AND v_new < greatest(p_step, 2 * cardinality(m.jobs)) THEN
    RETURN 0;
  END IF;
  INSERT INTO posthaste.stats_sum (number, hi, queues, priorities, names, tags, whats, jobs)
  SELECT m.number + 1, v_hi, coalesce(array_agg(s.queue), '{}'),
         coalesce(array_agg(s.priority), '{}'), coalesce(array_agg(s.name), '{}'),
         coalesce(array_agg(s.tag), '{}'), coalesce(array_agg(s.what), '{}'),
         coalesce(array_agg(s.jobs), '{}')
    FROM posthaste.limit_kinds(posthaste.kinds_since(m, v_hi), true) s;
  RETURN v_new;
END $f$;

-- Begins a new segment of deltas when the current one has p_bytes, and truncates the old one once
-- the sums, then stored in the new one, include all of it. Returns 'rotated', 'truncated', or the
-- obstacle.
CREATE OR REPLACE FUNCTION posthaste.rotate_stats(p_bytes bigint)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_low bigint := pg_sequence_last_value('posthaste.stats_low'::regclass);
  v_current bigint := pg_sequence_last_value('posthaste.stats_current'::regclass);
  v_old integer := v_low % 2;
  v_tables regclass[];
  v_holder text;
BEGIN
  IF v_low = v_current THEN
    IF pg_table_size(('posthaste.stats_delta_' || v_old)::regclass)
      + pg_table_size(('posthaste.stats_sum_' || v_old)::regclass) <= p_bytes THEN
      RETURN NULL;
    END IF;
    PERFORM setval('posthaste.stats_current', v_current + 1);
    RETURN 'rotated';
  END IF;
  -- Sums are made before the lock is requested: readers of the counters would wait for it.
  IF posthaste.has_newest_stats(v_old) THEN
    PERFORM posthaste.sum_stats(0);
    RETURN 'summed';
  END IF;
  v_tables := ARRAY['posthaste.stats_delta_' || v_old, 'posthaste.stats_sum_' || v_old]::regclass[];
  v_holder := posthaste.lock_holder(v_tables);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    EXECUTE format('LOCK TABLE %s, %s IN ACCESS EXCLUSIVE MODE NOWAIT', v_tables[1], v_tables[2]);
    -- Under the lock no session writes there, and every writer has ended. If deltas arrived
    -- meanwhile, the lock is released and they are summed next time.
    IF posthaste.has_newest_stats(v_old) THEN
      RAISE lock_not_available;
    END IF;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  EXECUTE format('TRUNCATE %s, %s', v_tables[1], v_tables[2]);
  PERFORM setval('posthaste.stats_low', v_low + 1);
  RETURN 'truncated';
END $f$;

-- Whether that segment has the newest sums, or deltas that are not in them.
CREATE OR REPLACE FUNCTION posthaste.has_newest_stats(p_slot integer)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  m posthaste.stats_sum := posthaste.newest_stats_sum();
BEGIN
  RETURN m.slot = p_slot
    OR EXISTS (SELECT FROM posthaste.stats_deltas_since(m.hi) t WHERE t.slot = p_slot);
END $f$;

CREATE OR REPLACE FUNCTION posthaste.stats()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
  v_kinds posthaste.kind[] := posthaste.kinds_since(posthaste.newest_stats_sum(), NULL);
BEGIN
  IF cardinality(v_kinds) > 1000 THEN
    RETURN QUERY SELECT * FROM posthaste.limit_kinds(v_kinds, true);
  ELSE
    RETURN QUERY SELECT * FROM unnest(v_kinds);
  END IF;
END $f$;
