-- Maintenance: functions that its duties share. Each duty is one short transaction under an
-- advisory lock, so that a second leader finds it taken and continues. Nothing here waits for a
-- user's transaction: locks are tried, not awaited, and locked rows are skipped.
--
-- Duty locks (1885893476, n): 1 the ready log (rotate, seal, overflow, reclaim)   2 the scheduled
-- slots   3 rescue   4 expiry   5 history   6 counting   7 samples

-- Applies the settings of a maintenance transaction to a statement that is sent without a block.
-- The isolation level can no longer be changed, so another one is rejected.
CREATE OR REPLACE FUNCTION posthaste.begin_single_statement()
RETURNS boolean LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_isolation text := current_setting('transaction_isolation'::text);
BEGIN
  IF v_isolation <> 'read committed'::text THEN
    RAISE EXCEPTION 'posthaste: a statement that is sent alone needs READ COMMITTED, not %',
      v_isolation
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  RETURN set_config('lock_timeout'::text, '1s'::text, true) IS NOT NULL
     AND set_config('jit'::text, 'off'::text, true) IS NOT NULL
     AND set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true) IS NOT NULL;
END $f$;

-- The holder of a lock on one of these tables, or of this advisory lock, whose transaction is older
-- than a second: a session by its pid, a prepared transaction by its gid. NULL if there is none.
CREATE OR REPLACE FUNCTION posthaste.lock_holder(
  p_tables regclass[], p_class bigint DEFAULT NULL, p_number bigint DEFAULT NULL)
RETURNS text LANGUAGE sql STABLE AS $f$
  SELECT coalesce('session ' || l.pid, 'the prepared transaction ' || x.gid,
      'a prepared transaction')
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
         LEFT JOIN pg_locks t ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid'
           AND t.virtualtransaction = l.virtualtransaction
         LEFT JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
   WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     AND l.pid IS DISTINCT FROM pg_backend_pid()
     AND (l.relation = ANY (p_tables) OR l.locktype = 'advisory' AND l.classid::bigint = p_class
         AND l.objid::bigint = p_number)
     AND coalesce(a.xact_start, x.prepared, '-infinity') < clock_timestamp() - interval '1 s'
       LIMIT 1
$f$;

-- The clock for deleting old data: it follows a clock that jumps ahead by only a minute for each
-- renewal of the lease, which is more than twenty times real time, and one that steps back at once.
-- After a week without a leader, old data is deleted within some hours; a clock that is a year
-- ahead for ten minutes costs four hours of history.
CREATE OR REPLACE FUNCTION posthaste.retention_clock()
RETURNS timestamptz LANGUAGE sql STABLE AS $f$
  SELECT least(clock_timestamp(), (SELECT l.retention_clock FROM posthaste.leader l))
$f$;

-- Deletes unused confirmations and workers that stopped long ago.
CREATE OR REPLACE FUNCTION posthaste.prune() RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  DELETE FROM posthaste.confirmed c
   WHERE c.confirmed_at < posthaste.retention_clock() - interval '1 day'
     AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.id = c.id);
  DELETE FROM posthaste.worker w WHERE w.stopped_at < posthaste.retention_clock() - interval '1 day'
     AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.worker = w.id)
$f$;

-- Corrects future timestamps of past events, left by a clock that was ahead: otherwise something
-- would be awaited, kept or notified for as long as the clock stepped back. Called when a leader
-- begins, and once a minute; returns the number found. Times requested by programs stay.
CREATE OR REPLACE FUNCTION posthaste.correct_future_times() RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_past timestamptz := v_now + interval '1 s';
  v_found bigint;
BEGIN
  WITH workers AS (
    UPDATE posthaste.worker w SET seen_at = least(w.seen_at, v_now),
           stopped_at = CASE WHEN w.stopped_at IS NOT NULL THEN least(w.stopped_at, v_now) END
     WHERE w.seen_at > v_past OR w.stopped_at > v_past RETURNING 1),
  cancelling AS (
    UPDATE posthaste.cancelling c SET asked_at = v_now WHERE c.asked_at > v_past RETURNING 1),
  confirmed AS (
    UPDATE posthaste.confirmed c SET confirmed_at = v_now
     WHERE c.confirmed_at > v_past RETURNING 1),
  -- A quarantined job waits for at most five minutes (functions/rescue.sql).
  quarantined AS (
    UPDATE posthaste.in_flight h SET until = v_now
     WHERE h.state = 'quarantined' AND h.until > v_now + interval '6 min' RETURNING 1),
  inbox AS (
    UPDATE posthaste.inbox i SET received_at = v_now
     WHERE i.delivery_id IN (SELECT o.delivery_id FROM posthaste.inbox o
                              WHERE o.received_at > v_past LIMIT 10000) RETURNING 1),
  -- A console drives an action, or pauses it, for at most half a minute.
  driven AS (
    UPDATE posthaste.bulk_action b SET driven_until = v_now
     WHERE b.state = 'running' AND b.driven_until > v_now + interval '1 min' RETURNING 1),
  found AS (
    SELECT FROM workers UNION ALL SELECT FROM cancelling UNION ALL SELECT FROM confirmed
    UNION ALL SELECT FROM quarantined UNION ALL SELECT FROM inbox UNION ALL SELECT FROM driven)
  SELECT count(*) INTO v_found FROM found;
  -- A sleeping worker renews its notifications before this time.
  IF pg_sequence_last_value('posthaste.listeners_until'::regclass) > extract(epoch FROM v_now) + 600
     AND pg_try_advisory_xact_lock(1885893480, 0) THEN
    PERFORM setval('posthaste.listeners_until', ceil(extract(epoch FROM v_now))::bigint + 30);
    v_found := v_found + 1;
  END IF;
  RETURN v_found;
END $f$;

-- Deletes old rows of the inbox, up to 10,000; returns their number.
CREATE OR REPLACE FUNCTION posthaste.prune_inbox() RETURNS bigint LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  WITH gone AS (
    DELETE FROM posthaste.inbox i USING (
      SELECT o.delivery_id FROM posthaste.inbox o
       WHERE o.received_at < posthaste.retention_clock()
                             - (SELECT s.keep_inbox FROM posthaste.setting s)
       ORDER BY o.received_at LIMIT 10000 FOR UPDATE SKIP LOCKED) o
     WHERE i.delivery_id = o.delivery_id RETURNING 1)
  SELECT count(*) FROM gone
$f$;
