-- Counters of the scheduled slots: marks as functions/marks.sql has them for lanes.

-- The newest mark, or an empty one.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.newest_scheduled_mark_6()
RETURNS posthaste.counted_6 LANGUAGE sql STABLE AS $f$
  SELECT n FROM (SELECT c AS n, c.number FROM posthaste.counted_6 c UNION ALL
                 SELECT ROW(0, '0', '-infinity', 0, true, '1:1:', '1:1:', '1:1:', '{}', '{}', '{}',
                     '{}', '{}', '{}')::posthaste.counted_6, 0) all_of_them
   ORDER BY number DESC LIMIT 1
$f$;
-- end

-- Jobs that left this slot and were not visible in that snapshot.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.left_since_6(p_hi pg_snapshot)
RETURNS SETOF posthaste.left_6 LANGUAGE sql STABLE AS $f$
  SELECT late.*
    FROM pg_snapshot_xip(p_hi) p,
         LATERAL (SELECT l.* FROM posthaste.left_6 l WHERE l.xid = p OFFSET 0) late
  UNION ALL
  SELECT l.* FROM posthaste.left_6 l WHERE l.xid >= pg_snapshot_xmax(p_hi)
$f$;
-- end

-- Jobs that entered this slot and are in no mark.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.entered_since_6(m posthaste.counted_6)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN m.exhausted THEN pg_snapshot_xmax(m.hi)
        ELSE greatest(m.at_xid, pg_snapshot_xmax(m.lo)) END AS xid,
           CASE WHEN m.exhausted OR m.at_xid < pg_snapshot_xmax(m.lo) THEN '-infinity'
               ELSE m.at_due END AS due,
           CASE WHEN m.exhausted OR m.at_xid < pg_snapshot_xmax(m.lo) THEN 0 ELSE m.at_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.* FROM (SELECT pg_snapshot_xip(m.lo) AS p UNION SELECT pg_snapshot_xip(m.hi)) x,
                       LATERAL (SELECT r.* FROM posthaste.scheduled_6 r
                           WHERE r.xid = x.p OFFSET 0) late
     WHERE x.p < low.xid
       AND NOT (pg_visible_in_snapshot(late.xid, m.lo) OR (pg_visible_in_snapshot(late.xid, m.hi)
           AND (m.exhausted
               OR (late.xid, late.scheduled_at, late.id) <= (m.at_xid, m.at_due, m.at_id))))
    UNION ALL
    (SELECT r.* FROM posthaste.scheduled_6 r
        WHERE (r.xid, r.scheduled_at, r.id) > (low.xid, low.due, low.id) OFFSET 0)
  ) r
$f$;
-- end

-- Counts jobs that entered and left this slot, at most p_limit or p_step, and writes a mark if
-- there are at least p_step; returns the number counted.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.count_scheduled_6(p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  m posthaste.counted_6 := posthaste.newest_scheduled_mark_6();
  n posthaste.counted_6;
  v_entered integer;
  v_left integer;
BEGIN
  n := m;
  -- With a smaller limit it could not tell whether there are more.
  p_limit := greatest(p_limit, p_step);
  n.number := m.number + 1;
  n.left_hi := posthaste.cursor_snapshot();
  IF m.exhausted THEN
    n.lo := m.hi; n.hi := n.left_hi; n.at_xid := '0'; n.at_due := '-infinity'; n.at_id := 0;
  END IF;
  WITH entered AS MATERIALIZED (
    SELECT r.xid, r.scheduled_at, r.id, coalesce(r.own_queue, r.queue) AS queue,
           coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag,
           posthaste.wait_kind(r.scheduled_at, r.attempt) AS what FROM (
      -- mutant: scheduled jobs of late commits are not counted:
      --   | SELECT late.* FROM (SELECT '1'::xid8 AS p WHERE false) p, LATERAL (
      SELECT late.* FROM pg_snapshot_xip(n.lo) p, LATERAL (
        SELECT r.* FROM posthaste.scheduled_6 r WHERE r.xid = p AND pg_visible_in_snapshot(p, n.hi)
           AND (r.xid, r.scheduled_at, r.id) > (n.at_xid, n.at_due, n.at_id)
             ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.* FROM posthaste.scheduled_6 r
        WHERE (r.xid, r.scheduled_at, r.id) > (greatest(n.at_xid, pg_snapshot_xmax(n.lo)),
                CASE WHEN n.at_xid < pg_snapshot_xmax(n.lo) THEN '-infinity' ELSE n.at_due END,
                CASE WHEN n.at_xid < pg_snapshot_xmax(n.lo) THEN 0 ELSE n.at_id END)
          AND r.xid < pg_snapshot_xmax(n.hi) AND pg_visible_in_snapshot(r.xid, n.hi)
        ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit)) r
     ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
  gone AS MATERIALIZED (SELECT * FROM posthaste.left_since_6(m.left_hi) l
      WHERE pg_visible_in_snapshot(l.xid, n.left_hi)),
  sums AS (
    SELECT s.queue, s.priority, s.name, s.tag, s.what, sum(s.jobs)::bigint AS jobs FROM (
      SELECT e.queue, e.priority, e.name, e.tag, e.what, 1 AS jobs FROM entered e UNION ALL
      SELECT g.queue, g.priority, g.name, g.tag, g.what, -g.jobs FROM gone g UNION ALL
      SELECT * FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs)) s
     GROUP BY s.queue, s.priority, s.name, s.tag, s.what HAVING sum(s.jobs) <> 0)
  SELECT (SELECT count(*) FROM entered), (SELECT count(*) FROM gone), coalesce(l.xid, n.at_xid),
         coalesce(l.scheduled_at, n.at_due), coalesce(l.id, n.at_id),
         coalesce(s.queues, '{}'), coalesce(s.priorities, '{}'), coalesce(s.names, '{}'),
         coalesce(s.tags, '{}'), coalesce(s.whats, '{}'), coalesce(s.jobs, '{}')
    INTO v_entered, v_left, n.at_xid, n.at_due, n.at_id, n.queues, n.priorities, n.names, n.tags,
      n.whats, n.jobs
    FROM (SELECT array_agg(queue) AS queues, array_agg(priority) AS priorities,
                 array_agg(name) AS names, array_agg(tag) AS tags,
                 array_agg(what) AS whats, array_agg(jobs) AS jobs FROM sums) s
    LEFT JOIN (SELECT xid, scheduled_at, id FROM entered ORDER BY xid DESC, scheduled_at DESC,
        id DESC LIMIT 1) l ON true;
  n.exhausted := v_entered < p_limit;
  IF cardinality(n.jobs) > 1000 THEN
    SELECT array_agg(k.queue), array_agg(k.priority), array_agg(k.name), array_agg(k.tag),
           array_agg(k.what), array_agg(k.jobs)
      INTO n.queues, n.priorities, n.names, n.tags, n.whats, n.jobs
      FROM posthaste.limit_kinds(posthaste.kinds_of(m.queues || n.queues,
        m.priorities || n.priorities, m.names || n.names, m.tags || n.tags, m.whats || n.whats,
        array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || n.jobs), n.exhausted) k;
  END IF;
  IF v_entered + v_left >= greatest(p_step, cardinality(n.jobs))
    OR (NOT m.exhausted AND n.exhausted) THEN
    INSERT INTO posthaste.counted_6 SELECT n.*;
    RETURN v_entered;
  END IF;
  RETURN 0;
END $f$;
-- end

-- Records jobs that leave a scheduled slot because it is their turn.
CREATE OR REPLACE FUNCTION posthaste.count_left(p_places posthaste.place[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- repeat: slots 6..7
  INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
    SELECT coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), r.name, r.tag,
    'blocked', 1 FROM unnest(p_places) u
    JOIN posthaste.scheduled_6 r ON r.xid = u.xid AND r.scheduled_at = '9999-01-01Z' AND r.id = u.id
    WHERE u.slot = 6 /*slot*/;
  -- end
END $f$;
