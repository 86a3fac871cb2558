-- Maintenance: the scheduled road. What is parked is promoted when it is due, and parked slots are kept small.

DO $do$
BEGIN
  FOR k IN 6..7 LOOP
    EXECUTE replace(replace($sql$

-- Transactions whose parked rows may be due by t_lo although they were not visible in lo, and that have ended by now: those that ran when lo was
-- taken. A snapshot does not name a running transaction whose xid is not below its xmax, hence the second part, up to the
-- bound from which on transactions saw t_lo themselves.
CREATE FUNCTION posthaste.late_@k@(p_lo pg_snapshot, p_hi pg_snapshot, p_bound xid8, p_at xid8) RETURNS xid8[] LANGUAGE plpgsql AS $f$
DECLARE
  v_late xid8[] := ARRAY(SELECT p FROM pg_snapshot_xip(p_lo) p
                          WHERE p >= p_at AND pg_visible_in_snapshot(p, p_hi) AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  v_next xid8;
BEGIN
  SELECT r.xid INTO v_next FROM posthaste.parked_@k@ r WHERE r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  WHILE v_next IS NOT NULL LOOP
    IF pg_visible_in_snapshot(v_next, p_hi) THEN
      v_late := v_late || v_next;
    END IF;
    SELECT r.xid INTO v_next FROM posthaste.parked_@k@ r WHERE r.xid > v_next AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  END LOOP;
  RETURN v_late;
END $f$;

-- Promotes one page of parked jobs that are due, at most p_limit, and returns their number.
-- A pass is the set {due by t_hi and visible in hi} without {due by t_lo and visible in lo}, its predecessors' set: no row is promoted twice, and
-- none is missed however late its transaction commits. First come the late rows (due by t_lo, but not visible in lo), transaction by transaction,
-- then what became due since, in the order (scheduled_at, id): ten million jobs of one instant are paged like any others.
-- p_final ends a generation: t_hi is infinity, and what is not due yet goes to the current parked slot.
CREATE FUNCTION posthaste.promote_@k@(p_limit integer, p_final boolean) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz := to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
  c posthaste.pass_@k@;
  v_late xid8[] := '{}';
  v_early boolean;
  v_page bigint := 0;
  v_rows bigint;
BEGIN
  SELECT * INTO c FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    c.page := 0; c.t_hi := '-infinity'; c.hi := '1:1:'; c.hi_bound := '0'; c.exhausted := true; c.promoted := 0;
  END IF;
  IF c.exhausted THEN
    -- A look first: a pass that finds nothing costs no xid and writes nothing.
    v_late := posthaste.late_@k@(c.hi, pg_current_snapshot(), c.hi_bound, '0');
    IF cardinality(v_late) < 8
       AND NOT EXISTS (SELECT FROM unnest(v_late) x, LATERAL (SELECT FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_hi LIMIT 1) late)
       AND (CASE WHEN p_final THEN NOT EXISTS (SELECT FROM posthaste.parked_@k@ r WHERE r.scheduled_at > c.t_hi) ELSE v_until <= c.t_hi END)
       AND clock_timestamp() - v_now < interval '2 ms' THEN
      RETURN 0;
    END IF;
    c.t_lo := c.t_hi; c.lo := c.hi; c.lo_bound := c.hi_bound; c.at_xid := '0'; c.at_due := '-infinity'; c.at_id := 0; c.late_done := false;
    c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;
    -- v_until was told to enqueuers, and a generation that is final was left by parked_current, before this transaction got its xid: whoever
    -- has a later one knew it.
    c.hi_bound := pg_current_xact_id();
    c.hi := posthaste.cursor_snapshot();
  END IF;
  IF NOT c.late_done THEN
    v_late := posthaste.late_@k@(c.lo, c.hi, c.lo_bound, c.at_xid);
  END IF;
  v_early := EXISTS (SELECT FROM posthaste.early_@k@);

  IF NOT c.late_done AND cardinality(v_late) > 0 THEN
    WITH due AS MATERIALIZED (
      SELECT r.*, v_early AND EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id) AS early
        FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END, CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
    @move@
    SELECT count(*) INTO v_page FROM due;
    IF v_page = p_limit THEN
      SELECT d.xid, d.scheduled_at, d.id INTO c.at_xid, c.at_due, c.at_id FROM (
      SELECT r.*, v_early AND EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id) AS early
        FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.parked_@k@ r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END, CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) d ORDER BY d.xid DESC, d.scheduled_at DESC, d.id DESC LIMIT 1;
    END IF;
  END IF;

  IF v_page < p_limit THEN
    IF NOT c.late_done THEN
      c.late_done := true; c.at_due := c.t_lo; c.at_id := 9223372036854775807;
    END IF;
    WITH due AS MATERIALIZED (
      SELECT r.*, v_early AND EXISTS (SELECT FROM posthaste.early_@k@ e WHERE e.xid = r.xid AND e.id = r.id) AS early
        FROM posthaste.parked_@k@ r
       WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id) AND r.scheduled_at <= c.t_hi AND pg_visible_in_snapshot(r.xid, c.hi)
       ORDER BY r.scheduled_at, r.id LIMIT p_limit - v_page),
    @move@
    SELECT count(*), coalesce(max(d.scheduled_at), c.at_due), coalesce((SELECT l.id FROM due l ORDER BY l.scheduled_at DESC, l.id DESC LIMIT 1), c.at_id)
      INTO v_rows, c.at_due, c.at_id FROM due d;
    c.exhausted := v_rows < p_limit - v_page;
    v_page := v_page + v_rows;
  ELSE
    c.exhausted := false;
  END IF;

  INSERT INTO posthaste.pass_@k@ (page, t_lo, t_hi, at_xid, at_due, at_id, promoted, late_done, exhausted, lo_bound, hi_bound, lo, hi)
  VALUES (c.page + 1, c.t_lo, c.t_hi, c.at_xid, c.at_due, c.at_id, c.promoted + v_page, c.late_done, c.exhausted, c.lo_bound, c.hi_bound, c.lo, c.hi);
  RETURN v_page;
END $f$;

-- Truncates a finished parked generation: nobody can enter it (the caller holds its lock), and no row of it waits for its promotion.
CREATE FUNCTION posthaste.truncate_@k@() RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.parked_@k@ r LEFT JOIN (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p ON true
              WHERE NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted), false)) THEN
    RETURN false;
  END IF;
  BEGIN
    LOCK TABLE posthaste.parked_@k@, posthaste.pass_@k@, posthaste.early_@k@ IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN false;
  END;
  TRUNCATE posthaste.parked_@k@, posthaste.pass_@k@, posthaste.early_@k@;
  RETURN true;
END $f$;

-- Whether the slot is really empty: a truncation whose transaction was lost after its setval leaves rows and passes behind.
CREATE FUNCTION posthaste.is_empty_@k@() RETURNS boolean LANGUAGE sql AS $f$
  SELECT NOT EXISTS (SELECT FROM posthaste.parked_@k@) AND NOT EXISTS (SELECT FROM posthaste.pass_@k@) AND NOT EXISTS (SELECT FROM posthaste.early_@k@)
$f$;

-- Rows of this slot: counted while it is small, else estimated from pages all over it.
CREATE FUNCTION posthaste.parked_rows_@k@() RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_percent real := least(100, 6400.0 * current_setting('block_size')::bigint / greatest(1, pg_relation_size('posthaste.parked_@k@')));
BEGIN
  RETURN (SELECT count(*) FROM posthaste.parked_@k@ TABLESAMPLE SYSTEM (v_percent)) * 100 / v_percent;
END $f$
$sql$, '@move@', $move$live AS (
      INSERT INTO posthaste.store (slot, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, queue, name, tag, unique_key, last_error, kwargs)
      SELECT CASE WHEN scheduled_at > v_now AND scheduled_at > (SELECT posthaste.parked_until()) THEN (SELECT posthaste.enter_parked()) ELSE (SELECT posthaste.enter_ready()) END,
             id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, queue, name, tag, unique_key, last_error, kwargs
        FROM due WHERE expires_at > v_now AND NOT early),
    freed AS (DELETE FROM posthaste.unique_key u USING due d WHERE d.expires_at <= v_now AND NOT d.early AND u.key = d.unique_key AND u.id = d.id),
    gone AS (
      INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, unique_key, last_error, kwargs)
      SELECT id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes, crashes, 'expired', queue, name, tag, unique_key, last_error, kwargs
        FROM due WHERE expires_at <= v_now AND NOT early ON CONFLICT (id) DO NOTHING)$move$), '@k@', k::text);
  END LOOP;
END $do$;

-- First half of a step of the scheduled road: when a parked job is due, tells enqueuers how far the promoter is going to look. A transaction of its own,
-- because setval takes an xid before it writes: the promoter may rely only on what was told before it had one.
CREATE FUNCTION posthaste.tell_due() RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN false;
  END IF;
  v_until := to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
  IF v_until >= v_now THEN
    RETURN false;
  END IF;
  -- A look that is slow walks rows of an open or rolled-back transaction: moving on spares the next one the walk.
  IF (CASE pg_sequence_last_value('posthaste.parked_current'::regclass) % 2
        WHEN 0 THEN EXISTS (SELECT FROM posthaste.parked_6 r WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now)
        ELSE EXISTS (SELECT FROM posthaste.parked_7 r WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now) END)
     OR clock_timestamp() - v_now > interval '2 ms' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM setval('posthaste.parked_until', floor(extract(epoch FROM v_now) * 1000000)::bigint);
    RETURN true;
  END IF;
  RETURN false;
END $f$;

-- Second half: promotes what is due, at most p_limit jobs, from the current parked slot, or carries on with what is left in the old one. One generation
-- in a transaction: a pass must not meet rows that its own transaction has just carried over.
CREATE FUNCTION posthaste.promote(p_limit integer, p_old boolean) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
  v_generation bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: promote needs a READ COMMITTED transaction of its own' USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  v_low := pg_sequence_last_value('posthaste.parked_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.parked_current'::regclass);
  v_generation := CASE WHEN p_old THEN v_low ELSE v_current END;
  IF p_old AND v_low = v_current THEN
    RETURN 0;
  END IF;
  RETURN CASE v_generation % 2 WHEN 0 THEN posthaste.promote_6(p_limit, p_old) ELSE posthaste.promote_7(p_limit, p_old) END;
END $f$;

-- Keeps the parked slots small. When at least p_spent rows of the current one, and as many as wait in it, are promoted, a new generation
-- starts and the promoter carries what waits over; an old generation that holds nothing any more is truncated.
CREATE FUNCTION posthaste.tidy_parked(p_spent bigint) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
  v_promoted bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 'busy';
  END IF;
  v_low := pg_sequence_last_value('posthaste.parked_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.parked_current'::regclass);
  IF v_low < v_current THEN
    IF pg_try_advisory_xact_lock(1885893474, v_low::integer)
       AND (CASE v_low % 2 WHEN 0 THEN posthaste.truncate_6() ELSE posthaste.truncate_7() END) THEN
      PERFORM setval('posthaste.parked_low', v_low + 1);
      RETURN 'truncated';
    END IF;
    RETURN 'draining';
  END IF;
  v_promoted := coalesce(CASE v_current % 2 WHEN 0 THEN (SELECT p.promoted FROM posthaste.pass_6 p ORDER BY page DESC LIMIT 1)
                                            ELSE (SELECT p.promoted FROM posthaste.pass_7 p ORDER BY page DESC LIMIT 1) END, 0);
  IF v_promoted < p_spent OR v_promoted * 2 < (CASE v_current % 2 WHEN 0 THEN posthaste.parked_rows_6() ELSE posthaste.parked_rows_7() END) THEN
    RETURN 'none';
  END IF;
  IF NOT (CASE v_current % 2 WHEN 0 THEN posthaste.is_empty_7() ELSE posthaste.is_empty_6() END) THEN
    RETURN CASE WHEN (CASE v_current % 2 WHEN 0 THEN posthaste.truncate_7() ELSE posthaste.truncate_6() END) THEN 'truncated' ELSE 'draining' END;
  END IF;
  PERFORM setval('posthaste.parked_current', v_current + 1);
  RETURN 'rotated';
END $f$;
