-- Restore: which database this is, what that means for delivery ids, and how jobs are taken over where their transaction ids mean nothing.
--
-- Rows and cursors speak in transaction ids. Those hold for one cluster and the tables that were created in it: a physical copy keeps them (crash
-- recovery, physical backups, point-in-time recovery, promotion), a logical one does not (pg_dump, logical replication).

-- Which store this is: the cluster, the tables and the timeline, and the database by its number, which a copy does not share and a new name does
-- not change.
CREATE FUNCTION posthaste.identity() RETURNS text[] LANGUAGE sql STABLE AS $f$
  SELECT (string_to_array(posthaste.whereabouts(), '/'))[1:3] || (SELECT oid FROM pg_database WHERE datname = current_database())::text
$f$;

-- Where the store was last worked.
CREATE TABLE posthaste.home (
  only_row boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  identity text[]      NOT NULL,  -- {} from the beginning of a rebase to its end
  since    timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO posthaste.home (identity) VALUES (posthaste.identity());

-- All ids up to this one were drawn, and whoever has the write-ahead log up to here knows it: a server that is promoted may know of more, never
-- of fewer. The leader moves it on.
CREATE SEQUENCE posthaste.known_id MINVALUE 0 START 0;
SELECT setval('posthaste.known_id', 0);
CREATE FUNCTION posthaste.note_ids() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_drawn bigint := pg_sequence_last_value('posthaste.job_id'::regclass);
BEGIN
  -- On a server that was promoted just now, not before it is known that it was.
  IF v_drawn IS NULL OR v_drawn <= pg_sequence_last_value('posthaste.known_id'::regclass)
     OR (SELECT identity FROM posthaste.home) <> posthaste.identity() THEN
    RETURN false;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true), setval('posthaste.known_id', v_drawn);
  RETURN true;
END $f$;

-- From this job id on, delivery ids are new ones.
CREATE FUNCTION posthaste.begin_incarnation(p_first bigint) RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.incarnation (n, first_id, value)
  SELECT coalesce((SELECT max(n) FROM posthaste.incarnation), 0) + 1, p_first,
         substr(replace(gen_random_uuid()::text, '-', ''), 1, 12) || substr(md5(gen_random_uuid()::text), 1, 3)
$f$;
SELECT posthaste.begin_incarnation(0);

-- The highest job id among the latest claims of workers: it was drawn before they were made.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.claimed_id() RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce(max(c.to_id), 0) FROM (
    (SELECT to_id FROM posthaste.claim_@k@ WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000) UNION ALL
    SELECT 0) c
$f$
$sql$);

-- Whether nothing was ever claimed, promoted or closed in this store.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.is_unworked() RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT
         NOT EXISTS (SELECT FROM posthaste.claim_@k@) AND NOT EXISTS (SELECT FROM posthaste.ack_@k@) AND
         NOT EXISTS (SELECT FROM posthaste.pass_6) AND NOT EXISTS (SELECT FROM posthaste.pass_7) AND
         NOT EXISTS (SELECT FROM posthaste.early_6) AND NOT EXISTS (SELECT FROM posthaste.early_7) AND
         NOT EXISTS (SELECT FROM posthaste.held)
$f$
$sql$);

-- Whether the transaction ids in the tables mean here what they say: the same cluster, the same tables.
CREATE FUNCTION posthaste.is_home() RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT h.identity[1:2] = i.here[1:2] FROM posthaste.home h, (SELECT posthaste.identity() AS here) i
$f$;

-- Whether these are not the tables that were worked here. A copy in which nothing was ever worked (a template of test databases) is as good as
-- they, a restored store only if nothing was ever enqueued: its cursors may be of two moments.
CREATE FUNCTION posthaste.needs_rebase() RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT CASE
    WHEN h.identity[1:2] = i.here[1:2] AND h.identity[4] = i.here[4] THEN false
    WHEN h.identity = '{}' THEN true
    ELSE NOT (posthaste.is_unworked() AND (posthaste.is_home() OR pg_sequence_last_value('posthaste.job_id'::regclass) IS NULL))
  END FROM posthaste.home h, (SELECT posthaste.identity() AS here) i
$f$;

-- Makes sure that work may go on here; for each new connection of a worker. A new timeline (the server was promoted, or recovered to a point in
-- time) keeps transaction ids, but ids of jobs may have stepped back: from the last known id on, jobs get new delivery ids.
CREATE FUNCTION posthaste.recognise() RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  v_here text[] := posthaste.identity();
  v_home text[] := (SELECT identity FROM posthaste.home);
BEGIN
  IF v_home = v_here THEN
    RETURN;
  END IF;
  SELECT identity INTO v_home FROM posthaste.home FOR UPDATE;
  IF v_home = v_here THEN
    RETURN;  -- somebody else has seen to it meanwhile
  END IF;
  IF posthaste.needs_rebase() THEN
    PERFORM posthaste.refuse_restored();
  END IF;
  UPDATE posthaste.home SET identity = v_here, since = clock_timestamp();
  -- No claim was made here yet, so each that there is was made before. In a copy nothing was ever claimed.
  PERFORM posthaste.begin_incarnation(CASE WHEN v_home[4] = v_here[4]
    THEN greatest(pg_sequence_last_value('posthaste.known_id'::regclass), posthaste.claimed_id()) + 1 ELSE 0 END);
END $f$;

CREATE FUNCTION posthaste.refuse_restored() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  RAISE EXCEPTION 'posthaste: this database was restored, copied or upgraded, and its jobs were not taken over yet'
    USING ERRCODE = 'object_not_in_prerequisite_state',
          HINT = 'Stop all workers and run `posthaste rebase` once; enqueue meanwhile as you like.';
END $f$;

-- For what people do to jobs: it looks at transaction ids.
CREATE FUNCTION posthaste.require_home() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF NOT posthaste.is_home() THEN
    PERFORM posthaste.refuse_restored();
  END IF;
END $f$;

-- A worker begins: its id, and the delivery ids that it gives: from each first id on, that of job 0.
CREATE FUNCTION posthaste.register(p_name text, OUT o_worker bigint, OUT o_first bigint[], OUT o_zero uuid[]) LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM posthaste.recognise();
  INSERT INTO posthaste.worker (name) VALUES (p_name) RETURNING id INTO o_worker;
  SELECT array_agg(i.first_id ORDER BY i.n), array_agg(posthaste.delivery_of(i.value, 0) ORDER BY i.n) INTO o_first, o_zero
    FROM posthaste.incarnation i;
END $f$;

-- Rebase: every unfinished job once into fresh generations, by the contents of the tables only (a dump reads sequences at other moments).
--
-- What is finished is told by rows: its acknowledgement, or its batch's. A batch names its jobs by transaction ids, and in a restored database a
-- job that was enqueued since may have one that falls into an old batch. It is told apart by two facts: a batch knows how many jobs it had, and
-- ids of jobs only grow. So the first so many by their ids are the batch's, and what is left was never claimed. The same holds for what was
-- promoted from a parked slot. Cursors are not asked at all: what is in no batch is unclaimed.

CALL posthaste.each_slot(0, 5, $sql$
CREATE FUNCTION posthaste.unfinished_@k@() RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_@k@ c JOIN posthaste.whole_@k@ w ON w.batch = c.batch, LATERAL posthaste.batch_rows_@k@(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.ack_@k@ a)
  SELECT r.* FROM posthaste.ready_@k@ r WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$
$sql$);

CALL posthaste.each_slot(6, 7, $sql$
CREATE FUNCTION posthaste.unfinished_@k@() RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on AS $f$
  WITH gone AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, p.promoted, row_number() OVER (ORDER BY r.id) AS place
              FROM posthaste.parked_@k@ r, (SELECT * FROM posthaste.pass_@k@ ORDER BY page DESC LIMIT 1) p
             WHERE posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted)) m
     WHERE m.place <= m.promoted
    UNION ALL
    SELECT e.xid, e.id FROM posthaste.early_@k@ e)
  SELECT r.* FROM posthaste.parked_@k@ r WHERE NOT EXISTS (SELECT FROM gone g WHERE g.xid = r.xid AND g.id = r.id)
$f$
$sql$);

-- A transaction id with its epoch: the latest that it can be.
CREATE FUNCTION posthaste.full_xid(x xid) RETURNS xid8 LANGUAGE sql STABLE AS $f$
  SELECT (n.now - ((n.now - x::text::numeric) % 4294967296 + 4294967296) % 4294967296)::text::xid8
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::numeric AS now) n
$f$;

-- The highest job id that was certainly drawn before the tables came here. A row was written here if its transaction, which it names, is one of
-- those since the table exists, and not younger than what Postgres says about the row: a savepoint's number is higher than its transaction's.
-- A restored row may look like that by chance; then its job gets a new delivery id, which is safe.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.foreign_id() RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce(max(o.id), 0) FROM (
    SELECT max(c.to_id) AS id FROM posthaste.claim_@k@ c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.ack_@k@ a UNION ALL
    SELECT max(h.id) FROM posthaste.held h UNION ALL
    SELECT max(d.id) FROM posthaste.dead d UNION ALL
    SELECT max(f.id) FROM posthaste.finished f UNION ALL
    SELECT max(a.job) FROM posthaste.attempt a UNION ALL
    SELECT max(r.id)
      FROM posthaste.store r,
           (SELECT posthaste.full_xid(a.xmin) AS born, pg_snapshot_xmax(pg_current_snapshot()) AS now
              FROM pg_attribute a WHERE a.attrelid = 'posthaste.store'::regclass AND a.attname = 'ctid' OFFSET 0) t
     WHERE CASE WHEN r.xid < t.born OR r.xid >= t.now THEN true
                WHEN r.xid::xid = r.xmin THEN false  -- nearly all that are native; the look below is dear
                ELSE r.xid > posthaste.full_xid(r.xmin) END) o
$f$
$sql$);

-- First step of a rebase, to be committed by itself: from then on nobody works here until the second is done. Refuses while a worker lives here,
-- whose jobs would be run by another beside it, unless p_force says that this may be.
CREATE FUNCTION posthaste.lock_out(p_force boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  v_living text;
BEGIN
  SELECT format('%s (%s)', w.id, w.name) INTO v_living FROM posthaste.worker w
   WHERE w.stopped_at IS NULL AND w.home = posthaste.whereabouts() AND w.seen_at > clock_timestamp() - interval '1 min' LIMIT 1;
  IF v_living IS NOT NULL AND NOT p_force THEN
    RAISE EXCEPTION 'posthaste: worker % lives', v_living
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Stop all workers first. One that was killed counts as living for a minute.';
  END IF;
  UPDATE posthaste.home SET identity = '{}', since = clock_timestamp();
  UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
END $f$;

-- Waits for whoever is in the tables, a few seconds, in the order in which claims and acknowledgements go through them; enqueues wait until the
-- end of the transaction.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.lock_store() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM set_config('lock_timeout', '5s', true);
  FOR n IN 1 .. 6 LOOP
    PERFORM pg_advisory_xact_lock(1885893476, n);
  END LOOP;
  LOCK TABLE posthaste.worker, posthaste.leader, posthaste.held IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.whole_@k@, posthaste.split_@k@, posthaste.claim_@k@, posthaste.ack_@k@, posthaste.early_@k@ IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.pass_6, posthaste.pass_7, posthaste.early_6, posthaste.early_7, posthaste.turn_6, posthaste.turn_7 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.store IN ACCESS EXCLUSIVE MODE;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
  RAISE EXCEPTION 'posthaste: % is in the queue''s tables',
      coalesce(posthaste.lock_holder(ARRAY(SELECT c.oid::regclass FROM pg_class c
                                            WHERE c.relnamespace = 'posthaste'::regnamespace AND c.relkind IN ('r', 'p'))), 'somebody')
    USING ERRCODE = 'lock_not_available', HINT = 'End it, or wait for its end, and try again.';
END $f$
$sql$);

CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.empty_slots() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  TRUNCATE posthaste.ready_@k@, posthaste.claim_@k@, posthaste.ack_@k@, posthaste.early_@k@, posthaste.whole_@k@, posthaste.split_@k@;
  TRUNCATE posthaste.left_@k@;
  TRUNCATE posthaste.parked_6, posthaste.pass_6, posthaste.early_6, posthaste.turn_6,
           posthaste.parked_7, posthaste.pass_7, posthaste.early_7, posthaste.turn_7, posthaste.left_6, posthaste.left_7;
END $f$
$sql$);

-- The last batch of each slot, and the highest worker that claimed there.
CALL posthaste.by_slot(0, 5, $sql$
CREATE FUNCTION posthaste.last_claims() RETURNS TABLE (batch bigint, worker bigint) LANGUAGE sql STABLE AS $f$
  SELECT max(batch), max(worker) FROM posthaste.claim_@k@ UNION ALL
  SELECT 0, 0
$f$
$sql$);

-- A sequence is moved forward, never back.
CREATE FUNCTION posthaste.at_least(p_cell regclass, p_value bigint) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF p_value > coalesce(pg_sequence_last_value(p_cell), 0) THEN
    PERFORM setval(p_cell, p_value);
  END IF;
END $f$;

-- Fresh generations, all of them empty. Sequences do not roll back: if the commit does not come, the tables are what they were, with cursors that
-- a second rebase does not ask and enqueue can live with, and nobody works here meanwhile.
CREATE FUNCTION posthaste.reset_cursors() RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  c record;
  v_ready bigint;
  v_aside bigint;
  v_parked bigint;
BEGIN
  SELECT * INTO c FROM posthaste.ring();
  v_ready := greatest(c.ready_low, c.ready_scan, c.ready_current) + 1;
  v_aside := greatest(c.aside_low, c.aside_scan, c.aside_current) + 1;
  v_parked := greatest(c.parked_low, c.parked_current) + 1;
  PERFORM setval('posthaste.ready_current', v_ready), setval('posthaste.ready_scan', v_ready), setval('posthaste.ready_low', v_ready),
          setval('posthaste.aside_current', v_aside), setval('posthaste.aside_scan', v_aside + 1), setval('posthaste.aside_low', v_aside),
          setval('posthaste.parked_current', v_parked), setval('posthaste.parked_low', v_parked), setval('posthaste.parked_until', 0),
          setval('posthaste.flags', (EXISTS (SELECT FROM posthaste.route))::integer), setval('posthaste.bell_until', 0);
END $f$;

-- Two jobs of one id: it was drawn here while the sequence was behind, as after a logical replication, which does not carry sequences.
CREATE FUNCTION posthaste.refuse_twins(p_ids bigint[]) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  RAISE EXCEPTION 'posthaste: % jobs have the id %', cardinality(p_ids), p_ids[1]
    USING ERRCODE = 'unique_violation',
          HINT = 'Move the sequence posthaste.job_id beyond all ids, give the younger one another id, and try again.';
END $f$;

-- Second step, one transaction of its own: takes over every job that is not done, once, and lets workers in again; how many jobs. What is held
-- for a confirmation, suspected, dead, periodic, routed or paused stays what it is; what ran runs again.
CALL posthaste.by_slot(0, 7, $sql$
CREATE FUNCTION posthaste.rebase() RETURNS bigint LANGUAGE plpgsql SET jit = off AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_first bigint;
  v_jobs bigint;
  v_keys text[];   -- ordering keys that are taken, and by which turn
  v_turns bigint[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: rebase needs a READ COMMITTED transaction of its own' USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.lock_store();
  IF (SELECT identity FROM posthaste.home) <> '{}' THEN
    RAISE EXCEPTION 'posthaste: rebase needs posthaste.lock_out() before it, committed' USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  v_first := posthaste.foreign_id() + 1;
  CREATE TEMPORARY TABLE posthaste_unfinished ON COMMIT DROP AS
    SELECT u AS job FROM posthaste.unfinished_@k@() u UNION ALL
    SELECT posthaste.let_go(h) FROM posthaste.held h WHERE h.state = 'running' AND h.crashes = 0;
  PERFORM posthaste.refuse_twins(array_agg((u.job).id)) FROM posthaste_unfinished u GROUP BY (u.job).id HAVING count(*) > 1 LIMIT 1;
  -- Numbers that somebody may still know are not drawn again.
  PERFORM posthaste.at_least('posthaste.job_id', greatest(v_first - 1, (SELECT max((u.job).id) FROM posthaste_unfinished u))),
          posthaste.at_least('posthaste.batch_id', (SELECT max(c.batch) FROM posthaste.last_claims() c)),
          posthaste.at_least('posthaste.worker_id', greatest((SELECT max(c.worker) FROM posthaste.last_claims() c),
                                                             (SELECT max(w.id) FROM posthaste.worker w)));
  SELECT array_agg(t.ordering_key), array_agg(t.turn) INTO v_keys, v_turns
    FROM (SELECT DISTINCT ON (ordering_key) * FROM (SELECT * FROM posthaste.turn_6 UNION ALL SELECT * FROM posthaste.turn_7) b
           ORDER BY ordering_key, n DESC) t WHERE NOT t.is_free;
  PERFORM posthaste.at_least('posthaste.turn', greatest((SELECT max((u.job).turn) FROM posthaste_unfinished u), (SELECT max(h.turn) FROM posthaste.held h),
                                                        (SELECT max(t) FROM unnest(v_turns) t)));
  DELETE FROM posthaste.held h WHERE h.state = 'running' AND h.crashes = 0;
  UPDATE posthaste.held h SET state = 'suspect', worker = NULL, token = NULL, until = v_now WHERE h.state = 'running';
  DELETE FROM posthaste.worker;
  DELETE FROM posthaste.leader;
  DELETE FROM posthaste.unique_key u WHERE NOT EXISTS (SELECT FROM posthaste_unfinished j WHERE (j.job).id = u.id)
     AND NOT EXISTS (SELECT FROM posthaste.held h WHERE h.id = u.id);
  PERFORM posthaste.empty_slots(), posthaste.reset_cursors();
  INSERT INTO posthaste.store
  SELECT a.*
    FROM posthaste_unfinished j,
         LATERAL (SELECT CASE WHEN (j.job).scheduled_at > v_now THEN (SELECT posthaste.enter_parked()) ELSE (SELECT posthaste.enter_ready()) END) s(slot),
         posthaste.again(j.job, s.slot) a
   ORDER BY (j.job).id;
  -- Ends of turns are rows too.
  SELECT count(*) INTO v_jobs FROM posthaste_unfinished u WHERE (u.job).queue <> '' OR (u.job).priority = 0;
  PERFORM posthaste.note_turns(v_keys, v_turns, array_fill(false, ARRAY[coalesce(cardinality(v_keys), 0)])) WHERE v_keys IS NOT NULL;
  PERFORM posthaste.begin_incarnation(v_first);
  PERFORM posthaste.recount();
  UPDATE posthaste.home SET identity = posthaste.identity(), since = clock_timestamp();
  RETURN v_jobs;
END $f$
$sql$);
