-- The consequences of the store's identity (functions/identity.sql) for work and delivery ids.
-- functions/rebase.sql takes over jobs whose transaction ids mean nothing here.
--
-- Rows and cursors contain transaction ids. Those are valid in one cluster and for the tables
-- created in it: physical copies keep them (crash recovery, physical backups, point-in-time
-- recovery, promotion), logical ones do not (pg_dump, logical replication).

-- The identity in the one row of posthaste.store_identity; '{}' if there is not exactly one, as in
-- a schema without its rows.
CREATE OR REPLACE FUNCTION posthaste.recorded_identity() RETURNS text[] LANGUAGE sql STABLE AS $f$
  SELECT CASE count(*) WHEN 1 THEN max(h.identity) ELSE '{}' END FROM posthaste.store_identity h
$f$;

-- Rows enter a slot in two ways: through posthaste.store, whose partitions then fire no statement
-- triggers, and directly, as written by a data restore or the initial copy of a replication. So
-- this trigger costs an enqueue nothing and commits with the loaded rows. Workers stop: one that
-- registers meanwhile waits for the lock and reads posthaste.store_identity afterwards.
CREATE OR REPLACE FUNCTION posthaste.note_copied()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- The leader of a store writes its own process there: that is no replication, but a worker whose
  -- session fires no triggers.
  IF TG_NAME = 'note_replicated' THEN
    IF NEW.pid = pg_backend_pid() AND EXISTS (SELECT FROM pg_stat_get_activity(NEW.pid) a
      WHERE a.backend_type = 'client backend') THEN
      PERFORM posthaste.require_triggers();
      RETURN NULL;
    END IF;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.store_identity h WHERE h.identity[1] = 'copied') THEN
    LOCK TABLE posthaste.worker IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO posthaste.store_identity (identity)
    VALUES (CASE WHEN pg_sequence_last_value('posthaste.job_id'::regclass) IS NULL
                 THEN '{copied}'::text[] ELSE '{copied,mixed}' END)
    ON CONFLICT DO NOTHING;
    UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
  END IF;
  RETURN NULL;
END $f$;

REVOKE EXECUTE ON FUNCTION posthaste.note_copied() FROM PUBLIC;

CREATE OR REPLACE FUNCTION posthaste.create_copy_triggers() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot regclass;
BEGIN
  FOR v_slot IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'posthaste.store'::regclass LOOP
    EXECUTE format('CREATE OR REPLACE TRIGGER note_copied AFTER INSERT ON %s
                      FOR EACH STATEMENT EXECUTE FUNCTION posthaste.note_copied()', v_slot);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER note_copied', v_slot);
  END LOOP;
END $f$;

-- Whether rows may have been loaded without a trace. Triggers that were disabled for a while
-- (pg_restore --disable-triggers) are no longer ALWAYS when they are enabled again.
CREATE OR REPLACE FUNCTION posthaste.is_unguarded() RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT 8 <> (SELECT count(*) FROM pg_inherits i JOIN pg_trigger t ON t.tgrelid = i.inhrelid
                WHERE i.inhparent = 'posthaste.store'::regclass
                  AND t.tgname = 'note_copied' AND t.tgenabled = 'A')
$f$;

-- Whether a slot certainly holds rows that were not written here: of a future transaction, or a
-- batch whose number was not drawn. For parts of a store that were loaded without its jobs.
CREATE OR REPLACE FUNCTION posthaste.has_foreign_rows() RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT EXISTS (SELECT FROM (
SELECT '0'::xid8 AS next, 0::bigint AS batch, NULL::xid8 AS xid UNION ALL
-- repeat: slots 0..5
(SELECT pg_snapshot_xmax(hi), batch, NULL FROM posthaste.claim_0 ORDER BY 2 DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_done_0 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_split_0 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, NULL, xid FROM posthaste.job_done_0 ORDER BY xid DESC, id DESC LIMIT 1) UNION ALL
-- end
(SELECT pg_snapshot_xmax(hi), NULL, NULL FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1)
  UNION ALL
(SELECT pg_snapshot_xmax(hi), NULL, NULL FROM posthaste.promote_cursor_7
    ORDER BY page DESC LIMIT 1)) u
   WHERE u.next > pg_snapshot_xmax(pg_current_snapshot())
      OR u.xid >= pg_snapshot_xmax(pg_current_snapshot())
      OR u.batch > coalesce(pg_sequence_last_value('posthaste.batch_id'::regclass), 0))
$f$;

CREATE OR REPLACE FUNCTION posthaste.note_ids() RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_drawn bigint := pg_sequence_last_value('posthaste.job_id'::regclass);
BEGIN
  -- On a server that was just promoted, not before its promotion is visible.
  IF v_drawn IS NULL OR v_drawn <= pg_sequence_last_value('posthaste.known_id'::regclass)
     OR posthaste.recorded_identity() <> posthaste.current_identity() THEN
    RETURN false;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true), setval('posthaste.known_id', v_drawn);
  RETURN true;
END $f$;

-- From this job id on, delivery ids are new.
CREATE OR REPLACE FUNCTION posthaste.begin_epoch(p_first bigint) RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.epoch (n, first_id, value)
  SELECT coalesce((SELECT max(n) FROM posthaste.epoch), 0) + 1, p_first,
         substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)
           || substr(md5(gen_random_uuid()::text), 1, 3)
$f$;

-- The highest job id among the workers' latest claims: it was drawn before they were made.
CREATE OR REPLACE FUNCTION posthaste.max_claimed_id() RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce(max(c.to_id), 0) FROM (
    -- repeat: slots 0..5
    (SELECT to_id FROM posthaste.claim_0 WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000)
      UNION ALL
    -- end
    SELECT 0) c
$f$;

-- Whether nothing was ever claimed, promoted or closed in this store.
CREATE OR REPLACE FUNCTION posthaste.is_unworked() RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT
         -- repeat: slots 0..5
         NOT EXISTS (SELECT FROM posthaste.claim_0)
           AND NOT EXISTS (SELECT FROM posthaste.job_done_0) AND
         -- end
         NOT EXISTS (SELECT FROM posthaste.promote_cursor_6)
           AND NOT EXISTS (SELECT FROM posthaste.promote_cursor_7) AND
         NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6)
           AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7) AND
         NOT EXISTS (SELECT FROM posthaste.in_flight)
$f$;

-- Whether transaction ids in the tables are valid here: the same cluster and the same tables.
CREATE OR REPLACE FUNCTION posthaste.is_own_store() RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT h.identity[1:2] = i.here[1:2]
    FROM (SELECT posthaste.recorded_identity() AS identity) h,
      (SELECT posthaste.current_identity() AS here) i
$f$;

-- Whether these tables are not, or not only, the ones that workers used here. A copy in which
-- nothing was ever claimed (a template of test databases) is as good as the original, a restored
-- store only if nothing was ever enqueued: its cursors may come from different moments. Not
-- thorough: does not read the slots.
CREATE OR REPLACE FUNCTION posthaste.needs_rebase(p_thorough boolean DEFAULT true)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE
    WHEN h.identity = '{}' OR posthaste.is_unguarded() THEN true
    WHEN p_thorough AND posthaste.has_foreign_rows() THEN true
    WHEN h.identity[1:2] = i.here[1:2] AND h.identity[4] = i.here[4] THEN false
    ELSE NOT (posthaste.is_unworked()
        AND (posthaste.is_own_store()
          OR pg_sequence_last_value('posthaste.job_id'::regclass) IS NULL))
  END FROM (SELECT posthaste.recorded_identity() AS identity) h,
    (SELECT posthaste.current_identity() AS here) i
$f$;

-- A session with session_replication_role = replica fires no triggers: the counters would be wrong,
-- and keys of dead jobs would stay taken.
CREATE OR REPLACE FUNCTION posthaste.require_triggers() RETURNS void LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF current_setting('session_replication_role') = 'replica' THEN
    RAISE EXCEPTION 'posthaste: this session fires no triggers: %',
      'session_replication_role is replica'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('ALTER ROLE %I RESET session_replication_role, if the role sets it.',
                          session_user);
  END IF;
END $f$;

-- Runs only under that setting, before posthaste.in_flight and posthaste.dead change: rejects
-- changes by posthaste's functions. Replication and restores write without them.
CREATE OR REPLACE FUNCTION posthaste.refuse_silent() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_context text;
BEGIN
  GET DIAGNOSTICS v_context = PG_CONTEXT;
  -- The first is this one.
  IF v_context LIKE '%function%function%' THEN
    PERFORM posthaste.require_triggers();
  END IF;
  RETURN NULL;
END $f$;

-- The same for a worker, whose sessions are its own: resets the setting if it may.
CREATE OR REPLACE FUNCTION posthaste.reset_replica_role() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF current_setting('session_replication_role') = 'replica' THEN
    PERFORM set_config('session_replication_role', 'origin', false);
  END IF;
EXCEPTION WHEN insufficient_privilege THEN
  PERFORM posthaste.require_triggers();
END $f$;

-- Ensures that workers may continue here; called for each new connection of a worker, and
-- thoroughly when it starts. A new timeline (the server was promoted, or recovered to a point in
-- time) keeps transaction ids, but job ids may have stepped back: from the last known id on, jobs
-- get new delivery ids.
CREATE OR REPLACE FUNCTION posthaste.check_identity(p_thorough boolean DEFAULT true)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_here text[];
  v_recorded text[];
BEGIN
  PERFORM posthaste.reset_replica_role();
  IF posthaste.needs_rebase(p_thorough) THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  v_here := posthaste.current_identity();
  IF posthaste.recorded_identity() = v_here THEN
    RETURN;
  END IF;
  PERFORM FROM posthaste.store_identity FOR UPDATE;
  v_recorded := posthaste.recorded_identity();
  IF v_recorded = v_here THEN
    RETURN;  -- another session has handled it meanwhile
  END IF;
  IF posthaste.needs_rebase() THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  UPDATE posthaste.store_identity SET identity = v_here, since = clock_timestamp()
    WHERE identity = v_recorded;
  -- No claim was made here yet, so all existing ones were made before. In a copy nothing was ever
  -- claimed.
  PERFORM posthaste.begin_epoch(CASE WHEN v_recorded[4] = v_here[4]
    THEN greatest(pg_sequence_last_value('posthaste.known_id'::regclass),
                  posthaste.max_claimed_id()) + 1 ELSE 0 END);
END $f$;

-- Advances sequences after a crash, and returns the value of posthaste.flags. A crash loses
-- transactions that had not waited for the disk. The sequences then repeat their numbers, although
-- a job with such a number may have run. So those whose numbers are visible outside are advanced
-- beyond all that can be lost: as many numbers as fit into the part of the log that is not on disk,
-- which is a segment, because a full one is flushed, plus the buffers. A sequence writes about a
-- hundred bytes for 32 numbers. A sequence without a value may have lost all of its numbers.
--
-- Called when posthaste.flags has no value, before a number is drawn. One caller takes the lock and
-- does it. The others continue once it is done, without waiting for the end of the caller's
-- transaction. It runs with its owner's rights, because enqueuers may not change sequences.
CREATE OR REPLACE FUNCTION posthaste.recover() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_leap bigint := (pg_size_bytes(current_setting('wal_segment_size'))
                    + pg_size_bytes(current_setting('wal_buffers'))) / 3;
  v_flags bigint := pg_sequence_last_value('posthaste.flags'::regclass);
BEGIN
  WHILE v_flags IS NULL LOOP
    IF pg_try_advisory_xact_lock(1885893480, 1) THEN
      v_flags := pg_sequence_last_value('posthaste.flags'::regclass);
      IF v_flags IS NULL THEN
        PERFORM setval(c.oid::regclass,
                       coalesce(pg_sequence_last_value(c.oid::regclass), 0) + v_leap)
           FROM pg_class c
          WHERE CASE WHEN c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'S'
                      AND (c.relname = 'job_id' OR c.relname ~ '^sync_version_')
                     THEN has_sequence_privilege(c.oid, 'UPDATE') END;
        PERFORM setval('posthaste.life', floor(random() * 9007199254740992)::bigint);
        v_flags := setval('posthaste.flags', (EXISTS (SELECT FROM posthaste.route))::integer);
      END IF;
    ELSE
      PERFORM pg_sleep(0.001);
      v_flags := pg_sequence_last_value('posthaste.flags'::regclass);
    END IF;
  END LOOP;
  RETURN v_flags;
END $f$;

REVOKE EXECUTE ON FUNCTION posthaste.recover() FROM PUBLIC;

-- A worker continues after a server crash under its id; returns false if it may not: it is not
-- registered, was declared dead, or belongs elsewhere. Its commit waits for the disk, including
-- what posthaste.recover() did: nothing is handed out before that is durable.
CREATE OR REPLACE FUNCTION posthaste.rejoin(p_worker bigint) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM posthaste.position('posthaste.flags'), posthaste.wait_for_disk();
  UPDATE posthaste.worker w SET identity = posthaste.session_identity()
   WHERE w.id = p_worker AND w.stopped_at IS NULL AND posthaste.is_this_store(w.identity);
  RETURN FOUND;
END $f$;

-- Tokens of a worker's claims with open jobs. The worker may not know some of them: it had the
-- answer to an acknowledgement that a server crash has undone.
CREATE OR REPLACE FUNCTION posthaste.open_tokens(p_worker bigint)
RETURNS SETOF uuid LANGUAGE sql STABLE
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT DISTINCT o.token FROM (
    -- repeat: slots 0..5
    SELECT c.token FROM posthaste.claim_0 c
     WHERE c.worker = p_worker
       AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
       AND EXISTS (SELECT FROM posthaste.batch_rows_0(c.batch, c.token) r
                    WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a
                                       WHERE a.xid = r.xid AND a.id = r.id))
    UNION ALL
    -- end
    SELECT h.token FROM posthaste.in_flight h
     WHERE h.worker = p_worker AND h.state = 'running') o
$f$;

CREATE OR REPLACE FUNCTION posthaste.reject_restored_store() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RAISE EXCEPTION 'posthaste: this database was restored, copied, upgraded or loaded, %',
    'and its jobs were not taken over yet'
    USING ERRCODE = 'object_not_in_prerequisite_state',
          HINT = 'Stop all workers and run `posthaste rebase` once; enqueuing still works.';
END $f$;

-- Required before operations on jobs, which use transaction ids. The first operation on a copy in
-- which nothing was worked makes it a separate store, as its first worker does: otherwise jobs
-- cancelled there would count as work of the original.
CREATE OR REPLACE FUNCTION posthaste.require_own_store() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM posthaste.require_triggers();
  IF NOT posthaste.is_own_store() THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  IF posthaste.recorded_identity() <> posthaste.current_identity() THEN
    PERFORM posthaste.check_identity(false);
  END IF;
END $f$;

-- Registers a worker: returns its id and its delivery ids: for each first id the delivery id of job
-- 0. Returns the reason instead if another site works the store.
CREATE OR REPLACE FUNCTION posthaste.register(
  p_name text, p_queues text[] DEFAULT '{}', p_site text DEFAULT NULL,
  p_addresses text[] DEFAULT '{}', OUT o_worker bigint, OUT o_first bigint[],
  OUT o_zero uuid[], OUT o_refused text, OUT o_registered timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- An id lost in a crash would be given to another process too.
  PERFORM posthaste.position('posthaste.flags'), posthaste.wait_for_disk();
  INSERT INTO posthaste.worker (name, queues) VALUES (p_name, p_queues)
    RETURNING id, started_at INTO o_worker, o_registered;
  -- After the insert: a session that locks workers out waits for this row, or this waits for it.
  o_refused := posthaste.enter_site(p_site, p_addresses, true);
  IF o_refused IS NOT NULL THEN
    -- mutant: a refused worker is registered:
    DELETE FROM posthaste.worker WHERE id = o_worker;
    RETURN;
  END IF;
  SELECT array_agg(i.first_id ORDER BY i.n),
         array_agg(posthaste.delivery_of(i.value, 0) ORDER BY i.n) INTO o_first, o_zero
    FROM posthaste.epoch i;
END $f$;
