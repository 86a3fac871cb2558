-- Statistics: deltas and their sums, of what has no slot to lie in.

-- The newest sums, or those before everything.
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

-- Each job that comes into posthaste.in_flight or posthaste.dead, changes there, or leaves.
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

-- What a worker has done since its last flush.
CREATE OR REPLACE FUNCTION posthaste.flush_stats(
  p_queues text[], p_priorities integer[], p_names text[], p_tags text[], p_whats text[],
  p_jobs bigint[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs) SELECT *
    FROM unnest(p_queues, p_priorities, p_names, p_tags, p_whats, p_jobs)
$f$;

-- Adds up the deltas since the last sums, if there are p_step at least, and twice as many as there
-- are sums. Sums since the beginning never end by themselves: where there are more than ten
-- thousand, they lose their tags, and beyond twenty thousand their priorities too.
CREATE OR REPLACE FUNCTION posthaste.sum_stats(p_step integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
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
    FROM (SELECT a.queue, CASE WHEN cardinality(m.jobs) > 20000 AND a.what LIKE '%\_total' THEN 0
                               ELSE a.priority END AS priority, a.name,
                 CASE WHEN cardinality(m.jobs) > 10000 AND a.what LIKE '%\_total' THEN ''
                     ELSE a.tag END AS tag,
                 a.what, sum(a.jobs)::bigint AS jobs
            FROM (SELECT t.queue, t.priority, t.name, t.tag, t.what, t.jobs
                FROM posthaste.stats_deltas_since(m.hi) t
                   WHERE pg_visible_in_snapshot(t.xid, v_hi) UNION ALL
                  SELECT * FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs)) a
           GROUP BY 1, 2, 3, 4, 5 HAVING sum(a.jobs) <> 0) s;
  RETURN v_new;
END $f$;

-- Begins a new segment of deltas when the current one has p_bytes, and empties the old one once the
-- sums, which lie in the new one then, have all of it. 'rotated', 'truncated', or what keeps it
-- from that.
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
  v_tables := ARRAY['posthaste.stats_delta_' || v_old, 'posthaste.stats_sum_' || v_old]::regclass[];
  v_holder := posthaste.lock_holder(v_tables);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    EXECUTE format('LOCK TABLE %s, %s IN ACCESS EXCLUSIVE MODE NOWAIT', v_tables[1], v_tables[2]);
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Under the lock: nobody is writing there, and nobody who has written is still open.
  IF (posthaste.newest_stats_sum()).slot = v_old
    OR EXISTS (SELECT FROM posthaste.stats_deltas_since((posthaste.newest_stats_sum()).hi) t
      WHERE t.slot = v_old) THEN
    PERFORM posthaste.sum_stats(0);
    RETURN 'summed';
  END IF;
  EXECUTE format('TRUNCATE %s, %s', v_tables[1], v_tables[2]);
  PERFORM setval('posthaste.stats_low', v_low + 1);
  RETURN 'truncated';
END $f$;

CREATE OR REPLACE FUNCTION posthaste.stats()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
  m posthaste.stats_sum := posthaste.newest_stats_sum();
BEGIN
  RETURN QUERY
    SELECT * FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs) u UNION ALL
    SELECT t.queue, t.priority, t.name, t.tag, t.what, t.jobs
      FROM posthaste.stats_deltas_since(m.hi) t;
END $f$;
