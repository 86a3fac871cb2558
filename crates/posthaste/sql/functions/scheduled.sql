-- The scheduled slots: compacts and truncates them.

-- Truncates a finished scheduled segment: no session can enter it (the caller holds its lock), and
-- no row waits to be promoted. Returns NULL, or the obstacle: 'unpromoted', or the holder of a lock
-- as truncate_k() of the ready log.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.truncate_6() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_holder text;
BEGIN
  -- mutant: a scheduled slot with waiting jobs is truncated: IF false THEN
  IF NOT posthaste.is_promoted_6() THEN
    RETURN 'unpromoted';
  END IF;
  v_holder := posthaste.lock_holder(ARRAY['posthaste.scheduled_6', 'posthaste.promote_cursor_6',
                                           'posthaste.closed_unclaimed_6', 'posthaste.turn_6',
                                           'posthaste.left_6', 'posthaste.counted_6']::regclass[]);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.scheduled_6, posthaste.promote_cursor_6, posthaste.closed_unclaimed_6,
      posthaste.turn_6, posthaste.left_6, posthaste.counted_6
      IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- mutant: turns are lost with their slot:
  PERFORM posthaste.carry_over_turns(6 /*slot*/);
  IF pg_relation_size('posthaste.scheduled_6') > 0 THEN TRUNCATE posthaste.scheduled_6; END IF;
  IF pg_relation_size('posthaste.promote_cursor_6') > 0 THEN TRUNCATE posthaste.promote_cursor_6;
  END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_6') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_6; END IF;
  IF pg_relation_size('posthaste.turn_6') > 0 THEN TRUNCATE posthaste.turn_6; END IF;
  IF pg_relation_size('posthaste.left_6') > 0 THEN TRUNCATE posthaste.left_6; END IF;
  IF pg_relation_size('posthaste.counted_6') > 0 THEN TRUNCATE posthaste.counted_6; END IF;
  RETURN NULL;
END $f$;
-- end

-- Whether the promoter has passed every row of the slot; the caller knows that no session writes to
-- it any more. Three index probes, whatever the slot's size: a row that is not promoted is due
-- after the last window, or belongs to a transaction that this window did not see.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.is_promoted_6() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_6;
BEGIN
  SELECT * INTO c FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN NOT EXISTS (SELECT FROM posthaste.scheduled_6);
  END IF;
  RETURN c.exhausted
    AND NOT EXISTS (SELECT FROM posthaste.scheduled_6 r WHERE r.scheduled_at > c.t_hi)
    AND NOT EXISTS (SELECT FROM posthaste.scheduled_6 r WHERE r.xid >= pg_snapshot_xmax(c.hi))
    AND NOT EXISTS (SELECT FROM pg_snapshot_xip(c.hi) x,
        LATERAL (SELECT FROM posthaste.scheduled_6 r WHERE r.xid = x LIMIT 1) late);
END $f$;
-- end

-- Whether the slot is empty: after a truncation whose transaction was lost after its setval, rows
-- and windows are still there.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.is_empty_6() RETURNS boolean LANGUAGE sql AS $f$
  SELECT NOT EXISTS (SELECT FROM posthaste.scheduled_6)
    AND NOT EXISTS (SELECT FROM posthaste.promote_cursor_6)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6)
       AND NOT EXISTS (SELECT FROM posthaste.turn_6)
$f$;
-- end

-- The number of finished rows of a slot: those promoted since it was truncated, the promoter's
-- windows (with many writers each poll writes one) and, estimated by size, rows closed before they
-- were promoted (52 bytes each) and outdated positions of ordering keys (80).
CREATE OR REPLACE FUNCTION posthaste.spent_scheduled(p_slot integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN
      RETURN coalesce((SELECT p.promoted + p.page FROM posthaste.promote_cursor_6 p
          ORDER BY page DESC LIMIT 1), 0)
        + pg_relation_size('posthaste.closed_unclaimed_6') / 52
        + greatest(0, pg_relation_size('posthaste.turn_6') / 80
        - pg_sequence_last_value('posthaste.turns_kept'::regclass));
    -- end
  END CASE;
END $f$;

CREATE OR REPLACE FUNCTION posthaste.is_empty(p_slot integer)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN RETURN posthaste.is_empty_6();
    -- end
  END CASE;
END $f$;

CREATE OR REPLACE FUNCTION posthaste.truncate_scheduled(p_slot integer)
RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN RETURN posthaste.truncate_6();
    -- end
  END CASE;
END $f$;

-- Estimates the bytes of p_rows waiting jobs of the slot by the next two hundred that are due:
-- their arguments, and 200 bytes for each row with its index entries.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.waiting_bytes_6(p_rows bigint) RETURNS bigint
LANGUAGE sql STABLE AS $f$
  SELECT coalesce(CASE WHEN count(*) < 200 THEN sum(w.bytes)
                       ELSE avg(w.bytes) * greatest(p_rows, 200)::numeric END, 0)::bigint
    FROM (SELECT pg_column_size(r.kwargs) + 200 AS bytes FROM posthaste.scheduled_6 r
           WHERE r.scheduled_at > coalesce((SELECT p.t_hi FROM posthaste.promote_cursor_6 p
               ORDER BY p.page DESC LIMIT 1), '-infinity')
           ORDER BY r.scheduled_at LIMIT 200) w
$f$;
-- end

-- Whether a new segment is worth copying the waiting jobs: at least p_rows rows or p_bytes bytes,
-- and half of the slot, are finished.
CREATE OR REPLACE FUNCTION posthaste.is_scheduled_spent(
  p_slot integer, p_rows bigint, p_bytes bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_spent bigint := posthaste.spent_scheduled(p_slot);
  v_bytes bigint := pg_table_size(('posthaste.scheduled_' || p_slot)::regclass);
  v_rows bigint;
BEGIN
  IF v_spent < p_rows AND (v_spent = 0 OR v_bytes <= p_bytes) THEN
    RETURN false;
  END IF;
  v_rows := posthaste.rows_in(p_slot) + pg_sequence_last_value('posthaste.turns_kept'::regclass);
  IF v_spent >= p_rows AND v_spent * 2 >= v_rows THEN
    RETURN true;
  END IF;
  CASE p_slot
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN
      RETURN v_bytes > p_bytes AND v_bytes >= 2 * posthaste.waiting_bytes_6(v_rows - v_spent);
    -- end
  END CASE;
END $f$;

-- Keeps the scheduled slots small: starts a new segment when enough of the current one is finished
-- (is_scheduled_spent), and truncates the old one once the promoter has carried its jobs over.
-- o_state: 'rotated', 'truncated', 'draining', 'locked' (o_blocker holds a lock), 'none' or 'busy'.
CREATE OR REPLACE FUNCTION posthaste.tidy_scheduled(
  p_spent bigint, p_bytes bigint DEFAULT 50331648, OUT o_state text, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
  v_slot integer;   -- the current one
  v_other integer;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    o_state := 'busy';
    RETURN;
  END IF;
  v_low := pg_sequence_last_value('posthaste.scheduled_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
  v_slot := 6 + v_current % 2;
  v_other := 13 - v_slot;
  o_state := 'none';
  IF v_low = v_current THEN
    IF NOT posthaste.is_scheduled_spent(v_slot, p_spent, p_bytes) THEN
      RETURN;
    END IF;
    -- mutant: a scheduled slot is entered again without being emptied: IF true THEN
    IF posthaste.is_empty(v_other) THEN
      PERFORM setval('posthaste.scheduled_current', v_current + 1);
      o_state := 'rotated';
      RETURN;
    END IF;
  ELSIF NOT pg_try_advisory_xact_lock(1885893474, v_low::integer) THEN
    o_state := 'draining';
    o_blocker := posthaste.lock_holder('{}', 1885893474, v_low);
    RETURN;
  END IF;
  o_blocker := posthaste.truncate_scheduled(v_other);
  IF o_blocker IS NULL THEN
    IF v_low < v_current THEN
      PERFORM setval('posthaste.scheduled_low', v_low + 1);
    END IF;
    o_state := 'truncated';
  ELSE
    o_state := CASE WHEN o_blocker = 'unpromoted' THEN 'draining' ELSE 'locked' END;
    o_blocker := nullif(o_blocker, 'unpromoted');
  END IF;
END $f$;
