-- Rebase: moves every unfinished job once into fresh segments, using only the contents of the
-- tables (a dump reads sequences at other moments).
--
-- A row is finished if it or its batch is acknowledged. A batch names its jobs by transaction ids,
-- and in a restored database a later job may have a transaction id within an old batch. Two facts
-- distinguish it: a batch records its number of jobs, and job ids only grow. So the first that many
-- rows by id belong to the batch, and the others were never claimed. The same holds for promotions
-- from a scheduled slot. Cursors are not used: rows in no batch are unclaimed.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.unfinished_0()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_0 c JOIN posthaste.batch_done_0 w ON w.batch = c.batch,
                LATERAL posthaste.batch_rows_0(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.job_done_0 a)
  SELECT r.* FROM posthaste.ready_0 r
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$;
-- end

-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.unfinished_6()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH gone AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, p.promoted, row_number() OVER (ORDER BY r.id) AS place
              FROM posthaste.scheduled_6 r,
                (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p
             WHERE posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                 p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted)) m
     WHERE m.place <= m.promoted
    UNION ALL
    SELECT e.xid, e.id FROM posthaste.closed_unclaimed_6 e)
  SELECT r.* FROM posthaste.scheduled_6 r
    WHERE NOT EXISTS (SELECT FROM gone g WHERE g.xid = r.xid AND g.id = r.id)
$f$;
-- end

-- A transaction id with its epoch: the latest possible one.
CREATE OR REPLACE FUNCTION posthaste.full_xid(x xid) RETURNS xid8 LANGUAGE sql STABLE AS $f$
  SELECT (n.now - ((n.now - x::text::numeric) % 4294967296 + 4294967296) % 4294967296)::text::xid8
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::numeric AS now) n
$f$;

-- The highest job id that was certainly drawn before the tables were loaded here. A row was written
-- here if its transaction is one since the table exists, and not younger than the row's xmin: a
-- savepoint's id is higher than its transaction's. A restored row may look like that by chance;
-- then its job gets a new delivery id, which is safe.
CREATE OR REPLACE FUNCTION posthaste.last_foreign_id() RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce(max(o.id), 0) FROM (
    -- repeat: slots 0..5
    SELECT max(c.to_id) AS id FROM posthaste.claim_0 c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.job_done_0 a UNION ALL
    -- end
    SELECT max(h.id) FROM posthaste.in_flight h UNION ALL
    SELECT max(d.id) FROM posthaste.dead d UNION ALL
    SELECT max(f.id) FROM posthaste.finished f UNION ALL
    SELECT max(a.job) FROM posthaste.attempt a UNION ALL
    SELECT max(r.id)
      FROM posthaste.store r,
           (SELECT posthaste.full_xid(a.xmin) AS born,
               pg_snapshot_xmax(pg_current_snapshot()) AS now
              FROM pg_attribute a
                WHERE a.attrelid = 'posthaste.store'::regclass AND a.attname = 'ctid' OFFSET 0) t
     WHERE CASE WHEN r.xid < t.born OR r.xid >= t.now THEN true
                -- nearly all native rows; the check below is expensive
                WHEN r.xid::xid = r.xmin THEN false
                ELSE r.xid > posthaste.full_xid(r.xmin) END) o
$f$;

-- First step of a rebase, to be committed separately: from then on no worker runs here until the
-- second step is done. Refuses while a worker is alive, whose jobs would be run twice, unless
-- p_force is set.
CREATE OR REPLACE FUNCTION posthaste.lock_out_workers(p_force boolean DEFAULT false)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_living text;
BEGIN
  PERFORM posthaste.require_triggers();
  IF EXISTS (SELECT FROM posthaste.store_identity WHERE identity = '{copied,mixed}')
    AND NOT p_force THEN
    RAISE EXCEPTION 'posthaste: rows were loaded into a store that already had jobs, and %',
      'it is not known which of them are completed'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Restore into a database without this schema. --force takes over the existing '
                   'jobs: completed jobs may run again, and unfinished ones may be missed.';
  END IF;
  SELECT format('%s (%s)', w.id, w.name) INTO v_living FROM posthaste.worker w
   WHERE w.stopped_at IS NULL AND posthaste.is_this_store(w.identity)
     AND w.seen_at BETWEEN clock_timestamp() - interval '1 min'
                       AND clock_timestamp() + interval '1 min' LIMIT 1;
  -- mutant: adoption ignores a live worker: IF false THEN
  IF v_living IS NOT NULL AND NOT p_force THEN
    RAISE EXCEPTION 'posthaste: worker % is running', v_living
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Stop all workers first. A killed worker counts as running for one minute.';
  END IF;
  DELETE FROM posthaste.store_identity;
  INSERT INTO posthaste.store_identity (identity) VALUES ('{}');
  PERFORM posthaste.recover()
    WHERE pg_sequence_last_value('posthaste.ready_scan'::regclass) IS NOT NULL;
  -- A schema without its rows has sequences that were never set.
  PERFORM setval(c.oid::regclass, 0) FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid
   WHERE CASE WHEN c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'S' AND s.seqmin = 0
              THEN pg_sequence_last_value(c.oid) IS NULL END;
  UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
END $f$;

-- Waits a few seconds for sessions that use the tables, in the order in which claims and
-- acknowledgements lock them; enqueues wait until the end of the transaction.
CREATE OR REPLACE FUNCTION posthaste.lock_store() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM set_config('lock_timeout', '5s', true);
  FOR n IN 1 .. 6 LOOP
    PERFORM pg_advisory_xact_lock(1885893476, n);
  END LOOP;
  LOCK TABLE posthaste.worker, posthaste.leader, posthaste.in_flight IN ACCESS EXCLUSIVE MODE;
  -- repeat: slots 0..5
  LOCK TABLE posthaste.batch_done_0, posthaste.batch_split_0, posthaste.claim_0,
    posthaste.job_done_0, posthaste.closed_unclaimed_0 IN ACCESS EXCLUSIVE MODE;
  -- end
  LOCK TABLE posthaste.promote_cursor_6, posthaste.promote_cursor_7, posthaste.closed_unclaimed_6,
    posthaste.closed_unclaimed_7, posthaste.turn_6, posthaste.turn_7 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.store IN ACCESS EXCLUSIVE MODE;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
  RAISE EXCEPTION 'posthaste: % holds a lock on the queue''s tables',
      coalesce(posthaste.lock_holder(ARRAY(SELECT c.oid::regclass FROM pg_class c
                                            WHERE c.relnamespace = 'posthaste'::regnamespace
                                              AND c.relkind IN ('r', 'p'))), 'another session')
    USING ERRCODE = 'lock_not_available', HINT = 'End it or wait until it ends, then try again.';
END $f$;

CREATE OR REPLACE FUNCTION posthaste.truncate_slots() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- repeat: slots 0..5
  TRUNCATE posthaste.ready_0, posthaste.claim_0, posthaste.job_done_0, posthaste.closed_unclaimed_0,
    posthaste.batch_done_0, posthaste.batch_split_0;
  TRUNCATE posthaste.left_0;
  -- end
  TRUNCATE posthaste.scheduled_6, posthaste.promote_cursor_6, posthaste.closed_unclaimed_6,
           posthaste.turn_6,
           posthaste.scheduled_7, posthaste.promote_cursor_7, posthaste.closed_unclaimed_7,
           posthaste.turn_7, posthaste.left_6, posthaste.left_7;
END $f$;

-- The last batch and the highest worker id of each slot.
CREATE OR REPLACE FUNCTION posthaste.last_claims()
RETURNS TABLE (batch bigint, worker bigint) LANGUAGE sql STABLE AS $f$
  -- repeat: slots 0..5
  SELECT max(batch), max(worker) FROM posthaste.claim_0 UNION ALL
  -- end
  SELECT 0, 0
$f$;

-- Moves a sequence forward, never back.
CREATE OR REPLACE FUNCTION posthaste.raise_sequence(p_cell regclass, p_value bigint)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF p_value > coalesce(pg_sequence_last_value(p_cell), 0) THEN
    PERFORM setval(p_cell, p_value);
  END IF;
END $f$;

-- Moves all cursors to fresh, empty segments. Sequences do not roll back: if the commit fails, the
-- tables are unchanged, with cursors that a second rebase does not use and that enqueuing
-- tolerates, and no worker runs meanwhile.
CREATE OR REPLACE FUNCTION posthaste.reset_cursors() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  c record;
  v_ready bigint;
  v_overflow bigint;
  v_scheduled bigint;
BEGIN
  SELECT * INTO c FROM posthaste.segments();
  v_ready := greatest(c.ready_low, c.ready_scan, c.ready_current) + 1;
  v_overflow := greatest(c.overflow_low, c.overflow_scan, c.overflow_current) + 1;
  v_scheduled := greatest(c.scheduled_low, c.scheduled_current) + 1;
  PERFORM setval('posthaste.ready_current', v_ready), setval('posthaste.ready_scan', v_ready),
          setval('posthaste.ready_low', v_ready),
          setval('posthaste.overflow_current', v_overflow),
          setval('posthaste.overflow_scan', v_overflow + 1),
          setval('posthaste.overflow_low', v_overflow),
          setval('posthaste.scheduled_current', v_scheduled),
          setval('posthaste.scheduled_low', v_scheduled), setval('posthaste.promote_horizon', 0),
          setval('posthaste.flags', (EXISTS (SELECT FROM posthaste.route))::integer),
          setval('posthaste.listeners_until', 0);
END $f$;

-- Two jobs with one id: one was drawn here while the sequence was too low, as after a logical
-- replication, which does not replicate sequences.
CREATE OR REPLACE FUNCTION posthaste.reject_duplicate_ids(p_ids bigint[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RAISE EXCEPTION 'posthaste: % jobs have the id %', cardinality(p_ids), p_ids[1]
    USING ERRCODE = 'unique_violation',
          HINT = 'Move the sequence posthaste.job_id above all ids, '
                 'give the newer job another id, and try again.';
END $f$;

-- Second step, a separate transaction: takes over every unfinished job once and lets workers in
-- again; returns the number of jobs. Awaiting, quarantined and dead jobs, schedules, routes and
-- pauses stay as they are; running jobs run again.
CREATE OR REPLACE FUNCTION posthaste.rebase() RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_first bigint;
  v_jobs bigint;
  v_keys text[];   -- ordering keys that are taken, and by which turn
  v_turns bigint[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: rebase needs a separate READ COMMITTED transaction'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.lock_store();
  IF NOT EXISTS (SELECT FROM posthaste.store_identity WHERE identity = '{}') THEN
    RAISE EXCEPTION 'posthaste: rebase needs posthaste.lock_out_workers() before it, committed'
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  v_first := posthaste.last_foreign_id() + 1;
  CREATE TEMPORARY TABLE posthaste_unfinished ON COMMIT DROP AS
    -- repeat: slots 0..7
    SELECT u AS job FROM posthaste.unfinished_0() u UNION ALL
    -- end
    SELECT posthaste.from_in_flight(h) FROM posthaste.in_flight h
      WHERE h.state = 'running' AND h.crashes = 0;
  PERFORM posthaste.reject_duplicate_ids(array_agg((u.job).id)) FROM posthaste_unfinished u
    GROUP BY (u.job).id HAVING count(*) > 1 LIMIT 1;
  -- Numbers that others may still know are not drawn again.
  PERFORM posthaste.raise_sequence('posthaste.job_id',
      greatest(v_first - 1, (SELECT max((u.job).id) FROM posthaste_unfinished u))),
          posthaste.raise_sequence('posthaste.batch_id',
              (SELECT max(c.batch) FROM posthaste.last_claims() c)),
          posthaste.raise_sequence('posthaste.worker_id',
              greatest((SELECT max(c.worker) FROM posthaste.last_claims() c),
                                                             (SELECT max(w.id)
                                                                 FROM posthaste.worker w)));
  SELECT array_agg(t.ordering_key), array_agg(t.turn) INTO v_keys, v_turns
    FROM (SELECT DISTINCT ON (ordering_key) *
        FROM (SELECT * FROM posthaste.turn_6 UNION ALL SELECT * FROM posthaste.turn_7) b
           ORDER BY ordering_key, n DESC) t WHERE NOT t.is_free;
  PERFORM posthaste.raise_sequence('posthaste.turn',
      greatest((SELECT max((u.job).turn) FROM posthaste_unfinished u),
                                                        (SELECT max(h.turn)
          FROM posthaste.in_flight h),
                                                        (SELECT max(t) FROM unnest(v_turns) t)));
  DELETE FROM posthaste.in_flight h WHERE h.state = 'running' AND h.crashes = 0;
  UPDATE posthaste.in_flight h SET state = 'quarantined', worker = NULL, token = NULL, until = v_now
    WHERE h.state = 'running';
  DELETE FROM posthaste.worker;
  DELETE FROM posthaste.leader;
  DELETE FROM posthaste.unique_key u
    WHERE NOT EXISTS (SELECT FROM posthaste_unfinished j WHERE (j.job).id = u.id)
     AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.id = u.id);
  PERFORM posthaste.truncate_slots(), posthaste.reset_cursors();
  INSERT INTO posthaste.store
  SELECT a.*
    FROM posthaste_unfinished j,
         LATERAL (SELECT CASE WHEN (j.job).scheduled_at > v_now
               THEN (SELECT posthaste.enter_scheduled())
               ELSE (SELECT posthaste.enter_ready()) END) s(slot),
         posthaste.reschedule_row(j.job, s.slot) a
   ORDER BY (j.job).id;
  -- Ends of turns are rows too.
  SELECT count(*) INTO v_jobs FROM posthaste_unfinished u
    WHERE (u.job).queue <> '' OR (u.job).priority = 0;
  PERFORM posthaste.note_turns(v_keys, v_turns,
      array_fill(false, ARRAY[coalesce(cardinality(v_keys), 0)])) WHERE v_keys IS NOT NULL;
  PERFORM posthaste.begin_epoch(v_first);
  PERFORM posthaste.recount();
  PERFORM posthaste.create_copy_triggers() WHERE posthaste.is_unguarded();
  UPDATE posthaste.bulk_action b
     SET state = 'stopped', ended_at = v_now, stopped_by = 'posthaste rebase'
   WHERE b.state IN ('running', 'failed');
  DELETE FROM posthaste.store_identity;
  DELETE FROM posthaste.site;
  INSERT INTO posthaste.store_identity (identity) VALUES (posthaste.current_identity());
  RETURN v_jobs;
END $f$;

-- Counts everything again, for a store whose snapshots are no longer valid (a logical restore).
-- Totals stay. No other session may be active.
CREATE OR REPLACE FUNCTION posthaste.recount() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_sums posthaste.stats_delta[];
BEGIN
  LOCK TABLE posthaste.in_flight, posthaste.dead, posthaste.stats_delta,
    posthaste.stats_sum IN SHARE ROW EXCLUSIVE MODE;
  v_sums := ARRAY(
    SELECT ROW(pg_current_xact_id(), sum(a.jobs), a.priority,
               pg_sequence_last_value('posthaste.stats_current') % 2,
               a.what, a.queue, a.name, a.tag)::posthaste.stats_delta
      FROM posthaste.stats() a WHERE a.what LIKE '%\_total' GROUP BY a.priority, a.what, a.queue,
        a.name, a.tag);
  TRUNCATE posthaste.stats_delta, posthaste.stats_sum;
  -- repeat: slots 0..5
  TRUNCATE posthaste.counted_0, posthaste.opened_0;
  -- end
  -- repeat: slots 6..7
  TRUNCATE posthaste.counted_6;
  -- end
  INSERT INTO posthaste.stats_delta SELECT s.* FROM unnest(v_sums) s;
  INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
  SELECT k.queue, k.priority, k.name, k.tag, k.state, count(*)
    FROM (SELECT queue, priority, name, tag, state FROM posthaste.in_flight
        UNION ALL SELECT queue, priority, name, tag, state FROM posthaste.dead) k
   GROUP BY k.queue, k.priority, k.name, k.tag, k.state;
END $f$;
