-- The bell's other end: workers that go to sleep arm it, and look once more. How it is rung stands in 0002_enqueue.sql.
--
-- Nobody's sleep is a matter of safety: each worker also looks from time to time, and a worker that was not rung for loses that time.

-- Rings for these bits of posthaste.flags until p_for from now. False when somebody's open transaction is just writing the first route. The
-- commit is asynchronous: a crash that forgets it ends the connections of all that sleep.
CREATE FUNCTION posthaste.arm_bell(p_bits bigint, p_for interval) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_bits bigint := p_bits & -2;
  v_flags bigint;
  v_until bigint := floor(extract(epoch FROM clock_timestamp() + p_for));
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '50ms', true);
  PERFORM pg_advisory_xact_lock(1885893480, 0);
  v_flags := pg_sequence_last_value('posthaste.flags'::regclass);
  IF v_flags & v_bits <> v_bits THEN
    PERFORM setval('posthaste.flags', v_flags | v_bits);
  END IF;
  IF v_bits <> 0 AND pg_sequence_last_value('posthaste.bell_until'::regclass) < v_until THEN
    PERFORM setval('posthaste.bell_until', v_until);
  END IF;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;

-- These bells are not rung any more, and whoever relied on one of them is told: it polls, or arms it again. False as above.
CREATE FUNCTION posthaste.rest_bell(p_bits bigint) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_armed bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '50ms', true);
  PERFORM pg_advisory_xact_lock(1885893480, 0);
  v_armed := pg_sequence_last_value('posthaste.flags'::regclass) & p_bits & -2;
  IF v_armed <> 0 THEN
    PERFORM setval('posthaste.flags', pg_sequence_last_value('posthaste.flags'::regclass) & ~v_armed);
    PERFORM pg_notify('posthaste_rest', v_armed::text);
  END IF;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;

CALL posthaste.each_slot(0, 5, $sql$
-- Lanes of these queues in this slot that have something to be claimed. The lanes are those that have rows, known or not: one index probe leads
-- from each to the next.
CREATE FUNCTION posthaste.stirring_@k@(p_queues text[]) RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_@k@ r WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_@k@ r WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_@k@ n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_@k@ says it, of one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_@k@ r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_@k@ r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_@k@ r WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$
$sql$);

-- Lanes of these queues that seem to have something to be claimed: one look for all queues that sleep.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.stirring(p_queues text[]) RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    CASE v_slot
      WHEN @k@ THEN RETURN QUERY SELECT s.* FROM posthaste.stirring_@k@(p_queues) s;
    END CASE;
  END LOOP;
END $f$
$sql$);

-- How long the promoter may sleep: until the next parked job is due, NULL when that is longer than p_ahead. Zero while something may be due now: who
-- waits in an old generation, what another leader is at, a clock that stepped back.
CALL posthaste.by_slot(6, 7, $sql$
CREATE FUNCTION posthaste.due_in(p_ahead interval) RETURNS interval LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz := to_timestamp(pg_sequence_last_value('posthaste.parked_until'::regclass) / 1000000.0);
  v_current bigint := pg_sequence_last_value('posthaste.parked_current'::regclass);
  v_next timestamptz;
BEGIN
  IF v_until >= v_now OR pg_sequence_last_value('posthaste.parked_low'::regclass) < v_current OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN interval '0';
  END IF;
  CASE 6 + v_current % 2
    WHEN @k@ THEN SELECT r.scheduled_at INTO v_next FROM posthaste.parked_@k@ r WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now + p_ahead ORDER BY r.scheduled_at, r.id LIMIT 1;
  END CASE;
  RETURN CASE WHEN v_next IS NOT NULL THEN greatest(v_next - v_now, interval '0') END;  -- greatest() passes over a NULL
END $f$
$sql$);
