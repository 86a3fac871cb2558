-- Maintenance: the scheduled road. What is parked is promoted when it is due, and parked slots are kept small.
--
-- A pass is the set {due by t_hi and visible in hi} without {due by t_lo and visible in lo}, its predecessors' set: no row is promoted
-- twice, and none is missed however late its transaction commits. First come the late rows (due by t_lo, but not visible in lo),
-- transaction by transaction, then what became due since, in the order (scheduled_at, id): ten million jobs of one instant are paged like
-- any others. The last pass of a generation has t_hi = infinity, and what is not due yet goes to the current parked slot.

CALL posthaste.each_slot(6, 7, replace($sql$

-- Transactions whose parked rows may be due by t_lo although they were not visible in lo, and that have ended by now: those that ran when
-- lo was taken. A snapshot does not name a running transaction whose xid is not below its xmax, hence the second part, up to the bound from
-- which on transactions saw t_lo themselves.
CREATE FUNCTION posthaste.late_@k@(p_lo pg_snapshot, p_hi pg_snapshot, p_bound xid8, p_at xid8) RETURNS xid8[] LANGUAGE plpgsql AS $f$
DECLARE
  v_late xid8[] := ARRAY(SELECT p FROM pg_snapshot_xip(p_lo) p
                          WHERE p >= p_at AND pg_visible_in_snapshot(p, p_hi) AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  v_next xid8;
BEGIN
  SELECT r.xid INTO v_next FROM posthaste.parked_@k@ r
   WHERE r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  WHILE v_next IS NOT NULL LOOP
    IF pg_visible_in_snapshot(v_next, p_hi) THEN
      v_late := v_late || v_next;
    END IF;
    SELECT r.xid INTO v_next FROM posthaste.parked_@k@ r WHERE r.xid > v_next AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  END LOOP;
  RETURN v_late;
END $f$;

-- The pass to go on with: the newest, or the one behind it. NULL when that would find nothing: a look costs no xid and writes nothing.
CREATE FUNCTION posthaste.next_pass_@k@(p_final boolean) RETURNS posthaste.pass_@k@ LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.pass_@k@;
  v_started timestamptz := clock_timestamp();
  v_until timestamptz := to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
  v_late xid8[];
BEGIN
  SELECT * INTO c FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    c.page := 0; c.t_hi := '-infinity'; c.hi := '1:1:'; c.hi_bound := '0'; c.exhausted := true; c.promoted := 0;
  END IF;
  IF NOT c.exhausted THEN
    RETURN c;
  END IF;
  v_late := posthaste.late_@k@(c.hi, pg_current_snapshot(), c.hi_bound, '0');
  IF cardinality(v_late) < 8
     AND NOT EXISTS (SELECT FROM unnest(v_late) x, LATERAL (
           SELECT FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_hi LIMIT 1) late)
     AND (CASE WHEN p_final THEN NOT EXISTS (SELECT FROM posthaste.parked_@k@ r WHERE r.scheduled_at > c.t_hi) ELSE v_until <= c.t_hi END)
     AND clock_timestamp() - v_started < interval '2 ms' THEN
    RETURN NULL;
  END IF;
  c.t_lo := c.t_hi; c.lo := c.hi; c.lo_bound := c.hi_bound; c.at_xid := '0'; c.at_due := '-infinity'; c.at_id := 0; c.late_done := false;
  c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;
  -- v_until was told to enqueuers, and a generation that is final was left by parked_current, before this transaction got its xid: whoever
  -- has a later one knew it.
  c.hi_bound := pg_current_xact_id();
  c.hi := posthaste.cursor_snapshot();
  RETURN c;
END $f$;

-- Promotes late rows of a pass, at most p_limit; where the pass stands then.
CREATE FUNCTION posthaste.promote_late_@k@(c posthaste.pass_@k@, p_limit integer) RETURNS posthaste.pass_@k@ LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_late xid8[];
  v_early boolean := EXISTS (SELECT FROM posthaste.early_@k@);
  v_rows bigint := 0;
  v_last record;
BEGIN
  v_late := posthaste.late_@k@(c.lo, c.hi, c.lo_bound, c.at_xid);
  IF cardinality(v_late) > 0 THEN
    WITH due AS MATERIALIZED (
      SELECT r.* FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END,
                                           CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
    @move@
    SELECT d.xid, d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last FROM due d ORDER BY d.xid DESC, d.scheduled_at DESC, d.id DESC LIMIT 1;
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

-- Promotes what became due since the pass before, at most p_limit; where the pass stands then.
CREATE FUNCTION posthaste.promote_due_@k@(c posthaste.pass_@k@, p_limit integer) RETURNS posthaste.pass_@k@ LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_early boolean := EXISTS (SELECT FROM posthaste.early_@k@);
  v_last record;
BEGIN
  WITH due AS MATERIALIZED (
    SELECT r.* FROM posthaste.parked_@k@ r
     WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id) AND r.scheduled_at <= c.t_hi AND pg_visible_in_snapshot(r.xid, c.hi)
     ORDER BY r.scheduled_at, r.id LIMIT p_limit),
  @move@
  SELECT d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last FROM due d ORDER BY d.scheduled_at DESC, d.id DESC LIMIT 1;
  IF FOUND THEN
    c.at_due := v_last.scheduled_at; c.at_id := v_last.id; c.promoted := c.promoted + v_last.n;
  END IF;
  c.exhausted := coalesce(v_last.n, 0) < p_limit;
  RETURN c;
END $f$;

-- Promotes one page of parked jobs that are due, at most p_limit, and returns their number.
CREATE FUNCTION posthaste.promote_@k@(p_limit integer, p_final boolean) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.pass_@k@ := posthaste.next_pass_@k@(p_final);
  v_before bigint := c.promoted;
BEGIN
  IF c.page IS NULL THEN
    RETURN 0;
  END IF;
  c.exhausted := false;
  IF NOT c.late_done THEN
    c := posthaste.promote_late_@k@(c, p_limit);
  END IF;
  IF c.late_done THEN
    c := posthaste.promote_due_@k@(c, p_limit - (c.promoted - v_before)::integer);
  END IF;
  c.page := c.page + 1;
  INSERT INTO posthaste.pass_@k@ SELECT c.*;
  RETURN c.promoted - v_before;
END $f$;

-- Whether every row of the slot is behind its cursor. The caller knows that nobody can be in it any more. Asked of three indexes, whatever
-- its size: a row that is not promoted is due later than the last pass looked, or is of a transaction that it could not see.
CREATE FUNCTION posthaste.is_promoted_@k@() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.pass_@k@;
BEGIN
  SELECT * INTO c FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN NOT EXISTS (SELECT FROM posthaste.parked_@k@);
  END IF;
  RETURN c.exhausted
    AND NOT EXISTS (SELECT FROM posthaste.parked_@k@ r WHERE r.scheduled_at > c.t_hi)
    AND NOT EXISTS (SELECT FROM posthaste.parked_@k@ r WHERE r.xid >= pg_snapshot_xmax(c.hi))
    AND NOT EXISTS (SELECT FROM pg_snapshot_xip(c.hi) x, LATERAL (SELECT FROM posthaste.parked_@k@ r WHERE r.xid = x LIMIT 1) late);
END $f$;

-- Truncates a finished parked generation: nobody can enter it (the caller holds its lock), and no row of it waits for its promotion. NULL
-- when that is done, else why not: 'waiting', who holds a lock, or '' for somebody in passing.
CREATE FUNCTION posthaste.truncate_@k@() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_holder text;
BEGIN
  IF NOT posthaste.is_promoted_@k@() THEN
    RETURN 'waiting';
  END IF;
  v_holder := posthaste.lock_holder(ARRAY['posthaste.parked_@k@', 'posthaste.pass_@k@', 'posthaste.early_@k@', 'posthaste.turn_@k@',
                                           'posthaste.left_@k@', 'posthaste.counted_@k@']::regclass[]);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.parked_@k@, posthaste.pass_@k@, posthaste.early_@k@, posthaste.turn_@k@, posthaste.left_@k@, posthaste.counted_@k@
      IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  PERFORM posthaste.keep_turns(@k@);
  TRUNCATE posthaste.parked_@k@, posthaste.pass_@k@, posthaste.early_@k@, posthaste.turn_@k@, posthaste.left_@k@, posthaste.counted_@k@;
  RETURN NULL;
END $f$;

-- Whether the slot is really empty: a truncation whose transaction was lost after its setval leaves rows and passes behind.
CREATE FUNCTION posthaste.is_empty_@k@() RETURNS boolean LANGUAGE sql AS $f$
  SELECT NOT EXISTS (SELECT FROM posthaste.parked_@k@) AND NOT EXISTS (SELECT FROM posthaste.pass_@k@)
     AND NOT EXISTS (SELECT FROM posthaste.early_@k@) AND NOT EXISTS (SELECT FROM posthaste.turn_@k@)
$f$
$sql$, '@move@', $move$open AS NOT MATERIALIZED (
      SELECT d.* FROM due d WHERE NOT v_early OR NOT EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = d.xid AND e.id = d.id)),
    told AS (
      INSERT INTO posthaste.left_@k@ (queue, priority, name, tag, what, jobs)
      SELECT coalesce(o.own_queue, o.queue), coalesce(o.own_priority, o.priority), o.name, o.tag, w.what, count(*)
        FROM open o, posthaste.wait_of(o.scheduled_at, o.attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
    live AS (
      INSERT INTO posthaste.store
      SELECT a.*
        FROM open o,
             LATERAL (SELECT CASE WHEN o.scheduled_at > v_now AND o.scheduled_at > (SELECT posthaste.parked_until())
                                  THEN (SELECT posthaste.enter_parked()) ELSE (SELECT posthaste.enter_ready()) + posthaste.ring_for(o.queue, (SELECT posthaste.bell())) END) s(slot),
             posthaste.again(o, s.slot) a
       WHERE o.expires_at > v_now),
    gone AS (
      INSERT INTO posthaste.dead
      SELECT d.* FROM open o, posthaste.to_keep(o, 'expired') d WHERE o.expires_at <= v_now ON CONFLICT (id) DO NOTHING)$move$));

-- First half of a step of the scheduled road: when a parked job is due, tells enqueuers how far the promoter is going to look. A
-- transaction of its own, because setval takes an xid before it writes: the promoter may rely only on what was told before it had one.
CALL posthaste.by_slot(6, 7, $sql$
CREATE FUNCTION posthaste.tell_due() RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz;
  v_due boolean;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN false;
  END IF;
  v_until := to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
  IF v_until >= v_now THEN
    RETURN false;
  END IF;
  CASE 6 + pg_sequence_last_value('posthaste.parked_current'::regclass) % 2
    WHEN @k@ THEN v_due := EXISTS (SELECT FROM posthaste.parked_@k@ r WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now);
  END CASE;
  -- A look that is slow walks rows of an open or rolled-back transaction: moving on spares the next one the walk.
  IF v_due OR clock_timestamp() - v_now > interval '2 ms' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM setval('posthaste.parked_until', floor(extract(epoch FROM v_now) * 1000000)::bigint);
    RETURN true;
  END IF;
  RETURN false;
END $f$
$sql$);

-- Second half: promotes what is due, at most p_limit jobs, from the current parked slot, or carries on with what is left in the old one.
-- One generation in a transaction: a pass must not meet rows that its own transaction has just carried over.
CALL posthaste.by_slot(6, 7, $sql$
CREATE FUNCTION posthaste.promote(p_limit integer, p_old boolean) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: promote needs a READ COMMITTED transaction of its own' USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  v_low := pg_sequence_last_value('posthaste.parked_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.parked_current'::regclass);
  IF p_old AND v_low = v_current THEN
    RETURN 0;
  END IF;
  CASE 6 + (CASE WHEN p_old THEN v_low ELSE v_current END) % 2
    WHEN @k@ THEN RETURN posthaste.promote_@k@(p_limit, p_old);
  END CASE;
END $f$
$sql$);

-- What tidy_parked() asks of a slot: rows promoted from it since it was truncated and, by their size, those closed before (52 bytes each) and notes
-- of turns that were not kept (80); whether it is really empty; and to truncate it.
CALL posthaste.by_slot(6, 7, $sql$
CREATE FUNCTION posthaste.spent_parked(p_slot integer) RETURNS bigint LANGUAGE plpgsql AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN RETURN coalesce((SELECT p.promoted FROM posthaste.pass_@k@ p ORDER BY page DESC LIMIT 1), 0) + pg_relation_size('posthaste.early_@k@') / 52 + greatest(0, pg_relation_size('posthaste.turn_@k@') / 80 - pg_sequence_last_value('posthaste.turns_kept'::regclass));
  END CASE;
END $f$
$sql$);
CALL posthaste.by_slot(6, 7, $sql$
CREATE FUNCTION posthaste.is_empty(p_slot integer) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN RETURN posthaste.is_empty_@k@();
  END CASE;
END $f$
$sql$);
CALL posthaste.by_slot(6, 7, $sql$
CREATE FUNCTION posthaste.truncate_parked(p_slot integer) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $f$
BEGIN
  CASE p_slot
    WHEN @k@ THEN RETURN posthaste.truncate_@k@();
  END CASE;
END $f$
$sql$);

-- Keeps the parked slots small. When at least p_spent rows of the current one, and as many as wait in it, are spent, a new generation
-- starts and the promoter carries what waits over; an old generation that holds nothing any more is truncated. o_state says what came of
-- it: 'rotated', 'truncated', 'draining', 'blocked' (o_blocker holds a lock), 'none' or 'busy'.
CREATE FUNCTION posthaste.tidy_parked(p_spent bigint, OUT o_state text, OUT o_blocker text) LANGUAGE plpgsql AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
  v_slot integer;   -- the current one
  v_other integer;
  v_spent bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    o_state := 'busy';
    RETURN;
  END IF;
  v_low := pg_sequence_last_value('posthaste.parked_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.parked_current'::regclass);
  v_slot := 6 + v_current % 2;
  v_other := 13 - v_slot;
  o_state := 'none';
  IF v_low = v_current THEN
    v_spent := posthaste.spent_parked(v_slot);
    IF v_spent < p_spent OR v_spent * 2 < posthaste.rows_in(v_slot) + pg_sequence_last_value('posthaste.turns_kept'::regclass) THEN
      RETURN;
    END IF;
    IF posthaste.is_empty(v_other) THEN
      PERFORM setval('posthaste.parked_current', v_current + 1);
      o_state := 'rotated';
      RETURN;
    END IF;
  ELSIF NOT pg_try_advisory_xact_lock(1885893474, v_low::integer) THEN
    o_state := 'draining';
    o_blocker := posthaste.lock_holder('{}', 1885893474, v_low);
    RETURN;
  END IF;
  o_blocker := posthaste.truncate_parked(v_other);
  IF o_blocker IS NULL THEN
    IF v_low < v_current THEN
      PERFORM setval('posthaste.parked_low', v_low + 1);
    END IF;
    o_state := 'truncated';
  ELSE
    o_state := CASE WHEN o_blocker = 'waiting' THEN 'draining' ELSE 'blocked' END;
    o_blocker := nullif(o_blocker, 'waiting');
  END IF;
END $f$;
