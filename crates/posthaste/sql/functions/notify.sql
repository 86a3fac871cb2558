-- Notifications. A worker that goes to sleep sets the bit of its queue in posthaste.flags, polls
-- once more, and is woken by NOTIFY when a transaction that has seen the bit commits. A commit with
-- NOTIFY excludes other such commits, so it is paid once per sleep and not once per job. An
-- enqueuer never clears a bit: if it rolled back or stayed open, workers would not be woken.

-- The bit of a queue. Queues share 61 bits: a queue that shares one is notified more often than
-- needed. The leader's queue is ''.
CREATE OR REPLACE FUNCTION posthaste.listener_bit(queue text)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN queue = '' THEN 2::bigint
      ELSE 4::bigint << ((hashtext(queue) & 2147483647) % 61) END
$f$;

-- The bits of the queues that this transaction must notify. None after SET posthaste.notify = off:
-- PREPARE TRANSACTION rejects transactions that have notified.
CREATE OR REPLACE FUNCTION posthaste.listeners() RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_flags bigint := posthaste.position('posthaste.flags');
BEGIN
  IF v_flags < 2 OR lower(current_setting('posthaste.notify', true)) IN ('off', 'false', 'no', '0')
     OR posthaste.position('posthaste.listeners_until')::numeric
        < extract(epoch FROM clock_timestamp()) THEN
    RETURN 0;
  END IF;
  RETURN v_flags;
END $f$;

-- Notifies the workers of a queue if its bit is among the listeners. Returns 0, to be added to the
-- slot of a row. One of the inner branches is never reached; it exists because a void result can
-- only be tested. The planner inlines it.
CREATE OR REPLACE FUNCTION posthaste.notify(queue text, listeners bigint)
RETURNS smallint LANGUAGE sql AS $f$
  SELECT CASE WHEN listeners & posthaste.listener_bit(queue) <> 0
              THEN CASE WHEN pg_notify('posthaste', left(queue, 255)) IS NULL
                        THEN 0::smallint ELSE 0::smallint END
              ELSE 0::smallint END
$f$;

-- Notifications, the worker's side: a worker that goes to sleep turns them on and polls once more.
-- They are only an optimisation: each worker also polls from time to time, so a missed notification
-- only costs time.

-- Turns the notifications of these bits of posthaste.flags on until p_for from now. Returns false
-- while another open transaction writes the first route. Returns NULL, and turns all notifications
-- off, while the server's notification queue is half full: once it is full, because a listening
-- session of any database stays in a transaction, each transaction that has notified fails at
-- COMMIT. Enqueuers do not check this: workers call it every few seconds, and the queue has room
-- for gigabytes. The commit is asynchronous: a crash that loses it also ends the sleepers'
-- connections.
CREATE OR REPLACE FUNCTION posthaste.notify_on(p_bits bigint, p_for interval)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_bits bigint := p_bits & -2;
  v_flags bigint;
  v_until bigint := floor(extract(epoch FROM clock_timestamp() + p_for));
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '50ms', true);
  PERFORM pg_advisory_xact_lock(1885893480, 0);
  v_flags := posthaste.position('posthaste.flags');
  IF v_bits <> 0 AND pg_notification_queue_usage() > 0.5 THEN
    PERFORM setval('posthaste.flags', v_flags & 1);
    RETURN NULL;
  END IF;
  IF v_flags & v_bits <> v_bits THEN
    PERFORM setval('posthaste.flags', v_flags | v_bits);
  END IF;
  -- Not at each renewal, since it is set ahead. A time further ahead than any sleep was written
  -- before the clock stepped back: workers that died asleep would be notified until then.
  IF v_bits <> 0 AND pg_sequence_last_value('posthaste.listeners_until'::regclass)
                     NOT BETWEEN v_until - extract(epoch FROM p_for) / 3 AND v_until + 600 THEN
    PERFORM setval('posthaste.listeners_until', v_until);
  END IF;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;

-- Turns the notifications of these bits off and informs the workers that rely on them: they poll,
-- or turn them on again. Returns false as above.
CREATE OR REPLACE FUNCTION posthaste.notify_off(p_bits bigint)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_on bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '50ms', true);
  PERFORM pg_advisory_xact_lock(1885893480, 0);
  v_on := posthaste.position('posthaste.flags') & p_bits & -2;
  IF v_on <> 0 THEN
    PERFORM setval('posthaste.flags', pg_sequence_last_value('posthaste.flags'::regclass) & ~v_on);
    PERFORM pg_notify('posthaste_rest', v_on::text);
  END IF;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;

-- Lanes of these queues in this slot that have something to claim. Lanes are found by their rows,
-- known or not: one index probe leads from each to the next.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.queues_with_work_0(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_0 r
               WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_0 r
               WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_0 n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_0, for one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_0 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo)
                  AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_0 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_0 r
                 WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
-- end

-- Lanes of these queues that seem to have something to claim: one poll for all sleeping queues.
CREATE OR REPLACE FUNCTION posthaste.queues_with_work(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    CASE v_slot
      -- repeat: slots 0..5
      WHEN 0 /*slot*/ THEN RETURN QUERY SELECT s.* FROM posthaste.queues_with_work_0(p_queues) s;
      -- end
    END CASE;
  END LOOP;
END $f$;

-- How long the promoter may sleep: until the next scheduled job is due; NULL if that is longer than
-- p_ahead. Zero while something may be due: jobs left in an old segment, another active leader, or
-- a clock that stepped back.
CREATE OR REPLACE FUNCTION posthaste.time_until_due(p_ahead interval)
RETURNS interval LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz :=
    to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0);
  v_current bigint := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
  v_next timestamptz;
BEGIN
  IF v_until >= v_now OR pg_sequence_last_value('posthaste.scheduled_low'::regclass) < v_current
    OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN interval '0';
  END IF;
  CASE 6 + v_current % 2
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN
      SELECT r.scheduled_at INTO v_next FROM posthaste.scheduled_6 r
      WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now + p_ahead
      ORDER BY r.scheduled_at, r.id LIMIT 1;
    -- end
  END CASE;
  -- greatest() ignores NULL
  RETURN CASE WHEN v_next IS NOT NULL THEN greatest(v_next - v_now, interval '0') END;
END $f$;
