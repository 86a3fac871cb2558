-- Counters: how many jobs there are, and of which kind, without reading them all
-- (decision 16 in docs/why/decisions.md).
--
-- The leader counts each job once, after it was enqueued, and writes sums, each with the snapshot
-- or cursor up to which it holds. A reader (functions/counts.sql) takes the newest sum and counts
-- only the rows added since. So the counters are always exact, and fast once the leader has caught
-- up; without a leader they are exact and slow. Nothing is updated or deleted: sums are stored in
-- tables of their slot and truncated with it.

-- Whether everything visible in one snapshot is visible in another.
CREATE OR REPLACE FUNCTION posthaste.is_subset(inner_one pg_snapshot, outer_one pg_snapshot)
RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF pg_snapshot_xmax(inner_one) > pg_snapshot_xmax(outer_one) THEN
    RETURN false;
  END IF;
  IF pg_snapshot_xmin(outer_one) >= pg_snapshot_xmax(inner_one) THEN
    RETURN true;
  END IF;
  RETURN NOT EXISTS (SELECT FROM pg_snapshot_xip(outer_one) x
      WHERE pg_visible_in_snapshot(x, inner_one));
END $f$;

-- Whether a lane's claims have taken everything that a mark counted: rows up to this one that are
-- visible in hi.
CREATE OR REPLACE FUNCTION posthaste.mark_passed(
  max_xid xid8, max_id bigint, hi pg_snapshot, c_lo pg_snapshot, c_hi pg_snapshot, c_xid xid8,
  c_id bigint, c_exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  -- mutant: a mark is used before claims have passed it:
  --   | SELECT (c_exhausted OR (max_xid, max_id) <= (c_xid, c_id))
  SELECT ((c_exhausted OR (max_xid, max_id) <= (c_xid, c_id)) AND posthaste.is_subset(hi, c_hi))
    OR posthaste.is_subset(hi, c_lo)
$f$;

-- The rows of a lane after a cursor, up to and including (p_to_xid, p_to_id). Each part is one
-- exact index range, as in batch_rows_k. The caller decides about visibility.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.rows_after_0(
  p_queue text, p_priority integer, p_lo pg_snapshot, p_hi pg_snapshot, p_xid xid8, p_id bigint,
  p_exhausted boolean, p_to_xid xid8, p_to_id bigint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN p_exhausted THEN pg_snapshot_xmax(p_hi)
        ELSE greatest(p_xid, pg_snapshot_xmax(p_lo)) END AS xid,
           CASE WHEN p_exhausted OR p_xid < pg_snapshot_xmax(p_lo) THEN -1 ELSE p_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.*
      FROM (SELECT pg_snapshot_xip(p_lo) AS p UNION SELECT pg_snapshot_xip(p_hi)) x, LATERAL (
      SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = x.p
         AND r.id > CASE WHEN x.p = p_xid AND NOT p_exhausted THEN p_id ELSE -1 END
         AND r.id <= CASE WHEN x.p = p_to_xid THEN p_to_id ELSE 9223372036854775807 END
           OFFSET 0) late
     WHERE x.p < low.xid AND x.p <= p_to_xid
       AND NOT posthaste.is_claimed(late.xid, late.id, p_lo, p_hi, p_xid, p_id, p_exhausted)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = low.xid AND r.id > low.id
        AND r.id <= CASE WHEN low.xid < p_to_xid THEN 9223372036854775807
            WHEN low.xid = p_to_xid THEN p_to_id ELSE -1 END OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid > low.xid
        AND r.xid < p_to_xid OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_to_xid
        AND p_to_xid > low.xid AND r.id <= p_to_id OFFSET 0)
  ) r
$f$;
-- end

-- The lanes of this slot, each with the cursor of its claims.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.cursors_0(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT r.queue, r.priority FROM posthaste.ready_0 r ORDER BY r.queue, r.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT r.queue, r.priority FROM posthaste.ready_0 r
                             WHERE (r.queue, r.priority) > (l.queue, l.priority)
                               ORDER BY r.queue, r.priority LIMIT 1) n)
  SELECT l.queue, l.priority, coalesce(c.lo, '1:1:'), coalesce(c.hi, '1:1:'),
         coalesce(c.to_xid, '0'), coalesce(c.to_id, 0), coalesce(c.exhausted, true)
    FROM lane l LEFT JOIN LATERAL (
      SELECT * FROM posthaste.claim_0 n WHERE n.queue = l.queue AND n.priority = l.priority
       ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
$f$;
-- end

-- Counts at most p_limit unclaimed jobs of a lane, writing a mark for each p_step of them; returns
-- the number counted. A lane with fewer is not worth a mark: readers count it.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.count_lane_0(
  p_queue text, p_priority integer, p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_0;
  m posthaste.counted_0;  -- the newest mark
  w posthaste.lane_window;
  v record;
  v_started timestamptz;
  v_step integer;
  v_counted integer := 0;
BEGIN
  SELECT * INTO c FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    c.lo := '1:1:'; c.hi := '1:1:'; c.to_xid := '0'; c.to_id := 0; c.exhausted := true;
  END IF;
  SELECT * INTO m FROM posthaste.counted_0 WHERE queue = p_queue AND priority = p_priority
   ORDER BY queue DESC, priority DESC, run DESC, max_xid DESC, max_id DESC, number DESC LIMIT 1;
  IF NOT FOUND
    OR posthaste.mark_passed(m.max_xid, m.max_id, m.hi, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted)
    THEN
    m := ROW(coalesce(m.number, 0) + 1, coalesce(m.number, 0) + 1, '0', 0, c.to_xid, c.to_id,
        p_priority, c.exhausted, p_queue, c.lo, c.hi, '{}', '{}', '{}');
  END IF;
  w.lo := m.lo; w.hi := m.hi; w.at_xid := m.at_xid; w.at_id := m.at_id; w.is_fresh := false;
  w := posthaste.with_bounds(w);
  IF m.exhausted THEN
    w := posthaste.next_counting_window(w, c.hi);
  END IF;
  WHILE v_counted < p_limit LOOP
    v_started := clock_timestamp();
    v_step := greatest(p_step, 8 * cardinality(m.jobs));
    WITH next AS MATERIALIZED (
      SELECT * FROM (
        -- mutant: counting ignores late commits:
        --   | SELECT late.* FROM unnest(w.late[1:0]) p, LATERAL (
        SELECT late.* FROM unnest(w.late) p, LATERAL (
          SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_0 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
           ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step) late
        UNION ALL
        (SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_0 r
          WHERE r.queue = p_queue AND r.priority = p_priority
            -- mutant: windows end at xmin:
            --   | AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmin(w.hi)
            AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
            AND pg_visible_in_snapshot(r.xid, w.hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step)
      ) both_parts ORDER BY xid, id LIMIT v_step),
    sums AS (
      SELECT s.name, s.tag, sum(s.n)::bigint AS n
        FROM (SELECT name, tag, count(*) AS n FROM next GROUP BY name, tag
              UNION ALL SELECT * FROM unnest(m.names, m.tags, m.jobs)) s GROUP BY s.name, s.tag)
    SELECT (SELECT count(*)::integer FROM next) AS n, l.xid, l.id, s.*
      INTO v
      FROM (SELECT array_agg(name) AS names, array_agg(tag) AS tags, array_agg(n) AS jobs
          FROM sums) s
      LEFT JOIN (SELECT xid, id FROM next ORDER BY xid DESC, id DESC LIMIT 1) l ON true;
    IF cardinality(v.jobs) > 1000 THEN
      SELECT array_agg(k.name), array_agg(k.tag), array_agg(k.jobs)
        INTO v.names, v.tags, v.jobs
        FROM posthaste.limit_kinds(posthaste.kinds_of('{}', '{}', m.names || v.names,
          m.tags || v.tags, '{}', array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || v.jobs),
          false) k;
    END IF;
    IF v.n < v_step AND w.is_fresh AND clock_timestamp() - v_started < interval '20 ms' THEN
      RETURN v_counted;
    END IF;
    -- A slow read of few jobs has scanned invisible rows: a mark spares the next read that scan.
    IF v.n > 0 OR w.is_fresh THEN
      IF m.number = m.run AND v_counted = 0 AND m.jobs = '{}' THEN
        INSERT INTO posthaste.counted_0 SELECT m.*;
      END IF;
      m.number := m.number + 1;
      m.lo := w.lo; m.hi := w.hi; m.exhausted := v.n < v_step;
      m.at_xid := coalesce(v.xid, w.at_xid); m.at_id := coalesce(v.id, w.at_id);
      IF v.n > 0 AND (v.xid, v.id) > (m.max_xid, m.max_id) THEN
        m.max_xid := v.xid; m.max_id := v.id;
      END IF;
      m.names := coalesce(v.names, '{}'); m.tags := coalesce(v.tags, '{}');
      m.jobs := coalesce(v.jobs, '{}');
      INSERT INTO posthaste.counted_0 SELECT m.*;
      v_counted := v_counted + v.n;
    END IF;
    IF v.n = v_step THEN
      w.at_xid := v.xid; w.at_id := v.id;
      w := posthaste.with_bounds(w);
    ELSIF w.is_fresh THEN
      RETURN v_counted;
    ELSE
      w := posthaste.next_counting_window(w, c.hi);
    END IF;
  END LOOP;
  RETURN v_counted;
END $f$;
-- end

-- Batches of a lane that may be open: those named by the newest mark, and later ones.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.possibly_open_0(p_queue text, p_priority integer)
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT b.batch
    FROM (SELECT coalesce((SELECT o FROM posthaste.opened_0 o
            WHERE o.queue = p_queue AND o.priority = p_priority
                            ORDER BY o.queue DESC, o.priority DESC, o.number DESC LIMIT 1),
                              NULL) AS mark OFFSET 0) m,
         LATERAL (SELECT unnest((m.mark).open) AS batch UNION ALL
                  SELECT c.batch FROM posthaste.claim_0 c
                    WHERE c.queue = p_queue AND c.priority = p_priority
                     AND c.batch > coalesce((m.mark).batch, 0) AND c.n > 0) b
   WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = b.batch)
$f$;
-- end

-- Lanes with claims.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.claimed_lanes_0(OUT queue text, OUT priority integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT c.queue, c.priority FROM posthaste.claim_0 c ORDER BY c.queue, c.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT c.queue, c.priority FROM posthaste.claim_0 c
                             WHERE (c.queue, c.priority) > (l.queue, l.priority)
                               ORDER BY c.queue, c.priority LIMIT 1) n)
  SELECT l.queue, l.priority FROM lane l
$f$;
-- end

-- Records which batches of each lane are open if that spares readers at least p_step probes. A
-- lane's batches become visible in order, because its lock is held until a claim's commit.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.mark_open_batches_0(p_step integer)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.opened_0 (queue, priority, number, batch, open)
  SELECT l.queue, l.priority, coalesce(mark.number, 0) + 1, coalesce(last.batch, mark.batch), o.open
    FROM posthaste.claimed_lanes_0() l
    LEFT JOIN LATERAL (SELECT m.number, m.batch, cardinality(m.open) AS n FROM posthaste.opened_0 m
        WHERE m.queue = l.queue AND m.priority = l.priority
                        ORDER BY m.queue DESC, m.priority DESC, m.number DESC LIMIT 1) mark ON true,
    LATERAL (SELECT max(c.batch) AS batch, count(*) AS n FROM posthaste.claim_0 c
              WHERE c.queue = l.queue AND c.priority = l.priority
                AND c.batch > coalesce(mark.batch, 0) OFFSET 0) last,
    -- mutant: a mark omits open batches:
    --   | LATERAL (SELECT coalesce((array_agg(b.batch))[1:0], '{}') AS open
    LATERAL (SELECT coalesce(array_agg(b.batch), '{}') AS open
               FROM posthaste.possibly_open_0(l.queue, l.priority) b(batch)
              WHERE EXISTS (SELECT FROM posthaste.claim_0 c,
                  LATERAL posthaste.batch_rows_0(c.batch, c.token) r
                             WHERE c.batch = b.batch
                               AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a
                                 WHERE a.xid = r.xid AND a.id = r.id))
             OFFSET 0) o
   WHERE coalesce(mark.n, 0) + last.n - cardinality(o.open) >= p_step
$f$;
-- end

-- The next window to count: up to the end of the claims' window if that is later, so that jobs are
-- counted in the order of their claims; else up to now.
CREATE OR REPLACE FUNCTION posthaste.next_counting_window(w posthaste.lane_window, c_hi pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  w := posthaste.next_window(w, posthaste.cursor_snapshot());
  IF posthaste.is_subset(w.lo, c_hi) AND NOT posthaste.is_subset(c_hi, w.lo) THEN
    w.hi := c_hi; w.is_fresh := false;
    w := posthaste.with_bounds(w);
  END IF;
  RETURN w;
END $f$;

-- The state as which a scheduled job is counted: one that waits for its turn is never due
-- (functions/ordering.sql).
CREATE OR REPLACE FUNCTION posthaste.wait_kind(due timestamptz, attempt integer)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN due = '9999-01-01Z' THEN 'blocked' WHEN attempt > 0 THEN 'retrying'
      ELSE 'scheduled' END
$f$;
