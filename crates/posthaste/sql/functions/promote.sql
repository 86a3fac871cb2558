-- Maintenance: the promoter. It moves scheduled jobs to the ready log when they are due, and keeps
-- the scheduled slots small.
--
-- A window is the set {due by t_hi and visible in hi} without its predecessors' set {due by t_lo
-- and visible in lo}: no row is promoted twice, and none is missed however late its transaction
-- commits. First come the late rows (due by t_lo, but not visible in lo), transaction by
-- transaction, then the newly due ones in the order (scheduled_at, id): ten million jobs due at one
-- instant are paged like any others. The last window of a segment has t_hi = infinity; rows that
-- are not due yet go to the current scheduled slot.

-- For a slot that is carried over because the clock was ahead until t_lo
-- (posthaste.return_to_earlier_segment): the latest due time that this clock may have assigned.
-- Retries, jobs rescheduled by a relay and polls of a sync are due at most an hour after they were
-- written, and are shifted back by the clock's error. Times set by programs stay.
CREATE OR REPLACE FUNCTION posthaste.skewed_until(
  t_lo timestamptz, t_hi timestamptz, moment timestamptz)
RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $f$
  SELECT CASE WHEN t_hi = 'infinity' AND t_lo > moment + interval '1 s' AND t_lo < 'infinity'
              -- mutant: a retry waits by a clock that was ahead:
              --   | THEN '-infinity'::timestamptz ELSE '-infinity' END
              THEN t_lo + interval '1 hour' ELSE '-infinity' END
$f$;

-- Transactions that have ended and whose scheduled rows may be due by t_lo although not visible in
-- lo: those that ran when lo was taken. A snapshot does not list a running transaction whose xid is
-- not below its xmax, hence the second part, up to the bound from which on transactions saw t_lo
-- themselves.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.late_transactions_6(
  p_lo pg_snapshot, p_hi pg_snapshot, p_bound xid8, p_at xid8)
RETURNS xid8[] LANGUAGE plpgsql AS $f$
DECLARE
  v_late xid8[] := ARRAY(SELECT p FROM pg_snapshot_xip(p_lo) p
                          WHERE p >= p_at AND pg_visible_in_snapshot(p, p_hi)
                            AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  v_next xid8;
BEGIN
  SELECT r.xid INTO v_next FROM posthaste.scheduled_6 r
   -- mutant: promotion trusts a snapshot's list of running transactions:
   --   | WHERE false ORDER BY r.xid LIMIT 1;
   WHERE r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  WHILE v_next IS NOT NULL LOOP
    IF pg_visible_in_snapshot(v_next, p_hi) THEN
      v_late := v_late || v_next;
    END IF;
    SELECT r.xid INTO v_next FROM posthaste.scheduled_6 r WHERE r.xid > v_next AND r.xid < p_bound
      ORDER BY r.xid LIMIT 1;
  END LOOP;
  RETURN v_late;
END $f$;
-- end

-- The window to continue: the newest, or the next one. NULL if it would find nothing: checking
-- costs no xid and writes nothing.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.next_promote_cursor_6(p_final boolean)
RETURNS posthaste.promote_cursor_6 LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_6;
  v_started timestamptz := clock_timestamp();
  v_until timestamptz :=
    to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0);
  v_late xid8[];
BEGIN
  SELECT * INTO c FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    c.page := 0; c.t_hi := '-infinity'; c.hi := '1:1:'; c.hi_bound := '0'; c.exhausted := true;
    c.promoted := 0;
  END IF;
  IF NOT c.exhausted THEN
    RETURN c;
  END IF;
  v_late := posthaste.late_transactions_6(c.hi, pg_current_snapshot(), c.hi_bound, '0');
  IF cardinality(v_late) < 8
     AND NOT EXISTS (SELECT FROM unnest(v_late) x, LATERAL (
           SELECT FROM posthaste.scheduled_6 r
             WHERE r.xid = x AND r.scheduled_at <= c.t_hi LIMIT 1) late)
     AND (CASE WHEN p_final THEN NOT EXISTS (SELECT FROM posthaste.scheduled_6 r
             WHERE r.scheduled_at > c.t_hi) ELSE v_until <= c.t_hi END)
     AND clock_timestamp() - v_started < interval '2 ms' THEN
    RETURN NULL;
  END IF;
  c.t_lo := c.t_hi; c.lo := c.hi; c.lo_bound := c.hi_bound; c.at_xid := '0';
  c.at_due := '-infinity'; c.at_id := 0; c.late_done := false;
  -- mutant: promotion reads up to the clock instead of the published time:
  --   | c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(clock_timestamp(), c.t_hi) END;
  c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;
  -- v_until was published to enqueuers, and scheduled_current had left a final segment, before this
  -- transaction got its xid: later transactions knew both.
  c.hi_bound := pg_current_xact_id();
  c.hi := posthaste.cursor_snapshot();
  RETURN c;
END $f$;
-- end

-- Promotes late rows of a window, at most p_limit; returns the window's new position.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.promote_late_6(c posthaste.promote_cursor_6, p_limit integer)
RETURNS posthaste.promote_cursor_6 LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_late xid8[];
  v_marked boolean := EXISTS (SELECT FROM posthaste.closed_unclaimed_6);
  v_ahead timestamptz := posthaste.skewed_until(c.t_lo, c.t_hi, v_now);
  v_rows bigint := 0;
  v_last record;
BEGIN
  -- mutant: promotion ignores late commits: v_late := '{}';
  v_late := posthaste.late_transactions_6(c.lo, c.hi, c.lo_bound, c.at_xid);
  IF cardinality(v_late) > 0 THEN
    WITH due AS MATERIALIZED (
      SELECT r.* FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.scheduled_6 r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             -- mutant: late promotion pages by time alone (3 lines):
             --   | AND r.scheduled_at > CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due
                   ELSE '-infinity' END,
                                           CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
    open AS NOT MATERIALIZED (
      SELECT d.* FROM due d
        WHERE NOT v_marked OR NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
          WHERE e.xid = d.xid AND e.id = d.id)),
    noted AS (
      INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
      SELECT coalesce(o.own_queue, o.queue), coalesce(o.own_priority, o.priority), o.name, o.tag,
             w.what, count(*)
        -- mutant: promotion is not counted:
        --   | FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) WHERE false
        --   |  GROUP BY 1, 2, 3, 4, 5),
        FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
    live AS (
      INSERT INTO posthaste.store
      SELECT a.*
        FROM open o,
             LATERAL (SELECT CASE WHEN o.scheduled_at <= v_ahead
                                   AND (o.attempt > 0 OR o.last_error IS NOT NULL
                                        OR starts_with(o.queue, 'sync.'))
                                  THEN o.scheduled_at - (c.t_lo - v_now)
                                  ELSE o.scheduled_at END AS due) w,
             LATERAL (SELECT CASE WHEN w.due > v_now
                   -- mutant: a carry-over checks only the clock:
                   AND w.due > (SELECT posthaste.promote_horizon())
                                  THEN (SELECT posthaste.enter_scheduled())
                                    ELSE (SELECT posthaste.enter_ready())
                                    + posthaste.notify(o.queue, (SELECT posthaste.listeners()))
                                    END) s(slot),
             posthaste.reschedule_row(o, s.slot, w.due) a
       -- bug: promotion drops every seventh job: WHERE o.expires_at > v_now AND o.id % 7 <> 0),
       WHERE o.expires_at > v_now),
    gone AS (
      INSERT INTO posthaste.dead
      SELECT d.* FROM open o, posthaste.to_dead(o, 'expired') d
        WHERE o.expires_at <= v_now ON CONFLICT (id) DO NOTHING)
    SELECT d.xid, d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last
      FROM due d ORDER BY d.xid DESC, d.scheduled_at DESC, d.id DESC LIMIT 1;
    v_rows := coalesce(v_last.n, 0);
  END IF;
  c.promoted := c.promoted + v_rows;
  IF v_rows < p_limit THEN
    c.late_done := true; c.at_due := c.t_lo; c.at_id := 9223372036854775807;
  ELSE
    c.at_xid := v_last.xid; c.at_due := v_last.scheduled_at; c.at_id := v_last.id;
  END IF;
  RETURN c;
END $f$;
-- end

-- Promotes rows that became due since the previous window, at most p_limit; returns the window's
-- new position.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.promote_due_6(c posthaste.promote_cursor_6, p_limit integer)
RETURNS posthaste.promote_cursor_6 LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_marked boolean := EXISTS (SELECT FROM posthaste.closed_unclaimed_6);
  v_ahead timestamptz := posthaste.skewed_until(c.t_lo, c.t_hi, v_now);
  v_last record;
BEGIN
  WITH due AS MATERIALIZED (
    SELECT r.* FROM posthaste.scheduled_6 r
     -- mutant: promotion pages by time alone:
     --   | WHERE r.scheduled_at > c.at_due AND r.scheduled_at <= c.t_hi
     WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id) AND r.scheduled_at <= c.t_hi
       AND pg_visible_in_snapshot(r.xid, c.hi)
     ORDER BY r.scheduled_at, r.id LIMIT p_limit),
  open AS NOT MATERIALIZED (
      SELECT d.* FROM due d
        WHERE NOT v_marked OR NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
          WHERE e.xid = d.xid AND e.id = d.id)),
    noted AS (
      INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
      SELECT coalesce(o.own_queue, o.queue), coalesce(o.own_priority, o.priority), o.name, o.tag,
             w.what, count(*)
        -- mutant: promotion is not counted:
        --   | FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) WHERE false
        --   |  GROUP BY 1, 2, 3, 4, 5),
        FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
    live AS (
      INSERT INTO posthaste.store
      SELECT a.*
        FROM open o,
             LATERAL (SELECT CASE WHEN o.scheduled_at <= v_ahead
                                   AND (o.attempt > 0 OR o.last_error IS NOT NULL
                                        OR starts_with(o.queue, 'sync.'))
                                  THEN o.scheduled_at - (c.t_lo - v_now)
                                  ELSE o.scheduled_at END AS due) w,
             LATERAL (SELECT CASE WHEN w.due > v_now
                   -- mutant: a carry-over checks only the clock:
                   AND w.due > (SELECT posthaste.promote_horizon())
                                  THEN (SELECT posthaste.enter_scheduled())
                                    ELSE (SELECT posthaste.enter_ready())
                                    + posthaste.notify(o.queue, (SELECT posthaste.listeners()))
                                    END) s(slot),
             posthaste.reschedule_row(o, s.slot, w.due) a
       -- bug: promotion drops every seventh job: WHERE o.expires_at > v_now AND o.id % 7 <> 0),
       WHERE o.expires_at > v_now),
    gone AS (
      INSERT INTO posthaste.dead
      SELECT d.* FROM open o, posthaste.to_dead(o, 'expired') d
        WHERE o.expires_at <= v_now ON CONFLICT (id) DO NOTHING)
  SELECT d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last
    FROM due d ORDER BY d.scheduled_at DESC, d.id DESC LIMIT 1;
  IF FOUND THEN
    c.at_due := v_last.scheduled_at; c.at_id := v_last.id; c.promoted := c.promoted + v_last.n;
  END IF;
  c.exhausted := coalesce(v_last.n, 0) < p_limit;
  RETURN c;
END $f$;
-- end

-- Promotes one page of due jobs, at most p_limit, and returns their number.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.promote_6(p_limit integer, p_final boolean)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_6 := posthaste.next_promote_cursor_6(p_final);
  v_before bigint := c.promoted;
BEGIN
  IF c.page IS NULL THEN
    RETURN 0;
  END IF;
  c.exhausted := false;
  IF NOT c.late_done THEN
    c := posthaste.promote_late_6(c, p_limit);
  END IF;
  IF c.late_done THEN
    c := posthaste.promote_due_6(c, p_limit - (c.promoted - v_before)::integer);
  END IF;
  c.page := c.page + 1;
  INSERT INTO posthaste.promote_cursor_6 SELECT c.*;
  RETURN c.promoted - v_before;
END $f$;
-- end

-- Handles a clock that is behind the published time: after a failover to a slower clock, or after
-- this one was corrected. Jobs due by the published time would run at once. So the present is
-- published, and the current segment, whose windows were read up to the published time, is replaced
-- by an unread one; its rows are carried over as after any rotation (tidy_scheduled). In this
-- order: a session that reads the earlier time asks later for the current segment and finds the new
-- one, so the old one receives no row that is due by the published time and belongs to a
-- transaction that the promoter does not check. Small steps are waited out, because carrying over
-- costs a row for each job. Returns false while an older segment is not empty.
CREATE OR REPLACE FUNCTION posthaste.return_to_earlier_segment(p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_current bigint := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
     OR pg_sequence_last_value('posthaste.scheduled_low'::regclass) < v_current THEN
    RETURN false;
  ELSIF NOT posthaste.is_empty(7 - (v_current % 2)::integer) THEN
    PERFORM posthaste.truncate_scheduled(7 - (v_current % 2)::integer);
    RETURN false;
  END IF;
  -- mutant: a clock step back continues in the same slot:
  PERFORM setval('posthaste.scheduled_current', v_current + 1);
  PERFORM setval('posthaste.promote_horizon', greatest(0,
            floor(extract(epoch FROM p_now) * 1000000))::bigint);
  RETURN true;
END $f$;

-- First half of a promotion: if a scheduled job is due, publishes to enqueuers how far the promoter
-- will read. A separate transaction, because setval takes an xid before it writes: the promoter may
-- rely only on what was published before it had one.
CREATE OR REPLACE FUNCTION posthaste.publish_horizon() RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  -- bug: the horizon is published late:
  --   | v_now timestamptz := clock_timestamp() - interval '1500 ms';
  v_now timestamptz := clock_timestamp();
  v_until timestamptz;
  v_due boolean;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN false;
  END IF;
  v_until :=
    to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0);
  IF v_until > v_now + interval '1 s' THEN
    -- mutant: a clock step back is not published: RETURN false;
    RETURN posthaste.return_to_earlier_segment(v_now);
  ELSIF v_until >= v_now THEN
    RETURN false;
  END IF;
  CASE 6 + pg_sequence_last_value('posthaste.scheduled_current'::regclass) % 2
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN
      v_due := EXISTS (SELECT FROM posthaste.scheduled_6 r
        WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now);
    -- end
  END CASE;
  -- A slow check has scanned rows of an open or rolled-back transaction: advancing spares the next
  -- check that scan. A clock that jumps ahead is followed even if nothing is due: back-offs by it
  -- are corrected only after a step back from a published time.
  IF v_due OR clock_timestamp() - v_now > interval '2 ms'
     OR v_now - v_until > interval '1 min' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- gate: publishing waits before it writes the horizon (insert):
    --   | PERFORM pg_current_xact_id();
    --   | PERFORM posthaste.gate(4);
    PERFORM setval('posthaste.promote_horizon', floor(extract(epoch FROM v_now) * 1000000)::bigint);
    RETURN true;
  END IF;
  RETURN false;
END $f$;

-- Second half: promotes due jobs, at most p_limit, from the current scheduled slot, or carries over
-- the rest of the old one. One segment per transaction: a window must not meet rows that its own
-- transaction has just carried over.
CREATE OR REPLACE FUNCTION posthaste.promote(p_limit integer, p_old boolean)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: promote needs a separate READ COMMITTED transaction'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  v_low := pg_sequence_last_value('posthaste.scheduled_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
  IF p_old AND v_low = v_current THEN
    RETURN 0;
  END IF;
  CASE 6 + (CASE WHEN p_old THEN v_low ELSE v_current END) % 2
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN RETURN posthaste.promote_6(p_limit, p_old);
    -- end
  END CASE;
END $f$;
