-- Roles for producers, workers and observers. Idempotent, and safe to run concurrently. Grants are
-- revoked first, so that no grant of an older version stays. Add members yourself, for example:
-- GRANT posthaste_producer TO app.
--
-- Roles belong to the whole cluster, grants to this database. The lock is that of the migrations.
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_advisory_xact_lock(1885893472, 0);

DO $do$
DECLARE
  v_role text;
  v_name text;
BEGIN
  FOREACH v_role IN ARRAY ARRAY['posthaste_producer', 'posthaste_worker', 'posthaste_observer'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = v_role) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- another session created it meanwhile, from another database
      END;
    END IF;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA posthaste FROM %I', v_role);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA posthaste FROM %I', v_role);
    EXECUTE format('GRANT USAGE ON SCHEMA posthaste TO %I', v_role);
  END LOOP;

  -- Shows how long other sessions have held locks. Without it, short locks seem to be long, and
  -- open transactions of idle sessions are not visible.
  BEGIN
    GRANT pg_read_all_stats TO posthaste_worker, posthaste_observer;
  EXCEPTION WHEN insufficient_privilege OR unique_violation OR internal_error THEN
    NULL;  -- no right to grant it, or granted at the same time from another database
  END;

  -- Also if EXECUTE was revoked from PUBLIC. Functions that run with their owner's rights are
  -- granted one by one, and trigger functions need no grant.
  EXECUTE (SELECT format('GRANT EXECUTE ON ROUTINE %s TO posthaste_producer, posthaste_worker, '
                         'posthaste_observer', string_agg(p.oid::regprocedure::text, ', '))
             FROM pg_proc p
            WHERE p.pronamespace = 'posthaste'::regnamespace AND NOT p.prosecdef
              AND p.prorettype <> 'trigger'::regtype);

  -- Rows of slots are inserted and truncated, never updated.
  FOR v_name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'posthaste'::regnamespace
    AND c.relname ~ '_[0-7]$' AND c.relkind = 'r' LOOP
    EXECUTE format('GRANT SELECT, INSERT, TRUNCATE ON posthaste.%I TO posthaste_worker', v_name);
  END LOOP;
  -- setval moves cursors, nextval draws numbers.
  FOR v_name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'posthaste'::regnamespace
    AND c.relkind = 'S' LOOP
    EXECUTE format('GRANT SELECT, %s ON SEQUENCE posthaste.%I TO posthaste_worker',
                   CASE WHEN v_name IN ('job_id', 'worker_id', 'batch_id', 'turn')
                          OR v_name LIKE 'sync\_%' THEN 'USAGE' ELSE 'UPDATE' END, v_name);
    -- A session that changes a synced table draws versions.
    IF v_name LIKE 'sync\_%' THEN
      EXECUTE format('GRANT SELECT, USAGE ON SEQUENCE posthaste.%I TO posthaste_producer', v_name);
    END IF;
  END LOOP;
END $do$;

GRANT SELECT ON ALL TABLES IN SCHEMA posthaste TO posthaste_worker, posthaste_observer;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA posthaste TO posthaste_observer;

-- A worker enqueues too, in its handlers.
GRANT INSERT ON posthaste.job, posthaste.staged_jobs, posthaste.outbox, posthaste.store,
  posthaste.attempt, posthaste.finished, posthaste.stats_delta,
  posthaste.stats_sum, posthaste.relay TO posthaste_worker;
GRANT INSERT, UPDATE, DELETE ON posthaste.worker, posthaste.leader, posthaste.lane,
  posthaste.in_flight, posthaste.dead, posthaste.unique_key,
  posthaste.confirmed, posthaste.cancelling, posthaste.queue, posthaste.periodic, posthaste.volume,
  posthaste.ordered_relay, posthaste.inbox, posthaste.search, posthaste.sample,
  posthaste.audited, posthaste.bulk_action, posthaste.alert, posthaste.site, posthaste.capture,
  posthaste.capture_gap, posthaste.capture_copy
  TO posthaste_worker;
-- The first worker that connects to a promoted server records its new identity.
GRANT UPDATE ON posthaste.store_identity TO posthaste_worker;
GRANT INSERT ON posthaste.epoch TO posthaste_worker;

-- For INSERT INTO posthaste.job, posthaste.enqueue and Rust's enqueue. The role can also write
-- unchecked rows, but not choose their job id, transaction, attempts, unique key or turn.
GRANT USAGE ON SEQUENCE posthaste.job_id TO posthaste_producer;
GRANT SELECT ON SEQUENCE posthaste.ready_current, posthaste.ready_scan, posthaste.scheduled_current,
  posthaste.promote_horizon, posthaste.flags, posthaste.listeners_until
  TO posthaste_producer;
GRANT SELECT ON posthaste.route, posthaste.synced TO posthaste_producer;
GRANT INSERT, SELECT (id) ON posthaste.job, posthaste.staged_jobs, posthaste.outbox
  TO posthaste_producer;
GRANT INSERT (slot, queue, name, priority, enqueued_at, scheduled_at, expires_at, tag, max_attempts,
              kwargs_bytes, kwargs, ordering_key, own_queue, own_priority, trace),
  SELECT (id)
  ON posthaste.store TO posthaste_producer;
GRANT SELECT ON posthaste.unique_key TO posthaste_producer;
GRANT EXECUTE ON FUNCTION
  posthaste.enqueue_slow(text, jsonb, text, integer, timestamptz, timestamptz, text, text, integer,
                          text, text, boolean),
  posthaste.recover() TO posthaste_producer, posthaste_worker;
GRANT EXECUTE ON FUNCTION posthaste.cluster(), posthaste.timeline()
  TO posthaste_worker, posthaste_observer;

-- `posthaste txwatch` may act with pg_signal_backend alone, and records what it does.
GRANT USAGE ON SCHEMA posthaste TO pg_signal_backend;
GRANT SELECT, INSERT ON posthaste.txwatch_action TO pg_signal_backend;
GRANT UPDATE (result, finished_at) ON posthaste.txwatch_action TO pg_signal_backend;
GRANT DELETE ON posthaste.txwatch_action TO pg_signal_backend;
