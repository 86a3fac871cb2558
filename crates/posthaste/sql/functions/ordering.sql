-- Ordering: jobs with the same ordering key run one at a time, in the order in which they were
-- enqueued, each after the previous one has ended for good.
--
-- Only the leader orders jobs. It claims two internal lanes of the ready log as a worker claims
-- jobs, so that it misses no late commit and handles no row twice. Their queue is '', which no job
-- may have:
--   ('', 0) jobs without a turn; own_queue and own_priority are their lane
--   ('', 1) ends of turns: the row contains the key and the turn of a job that has ended
-- Each job gets a turn, a growing number. If its key is free, it goes to its own lane at once. Else
-- it waits in a scheduled slot with the due time '9999-01-01', which no job may have. There it
-- expires, is cancelled or is carried over like any scheduled job. At the end of a turn, the next
-- job of the key leaves its scheduled slot. A job that is retried, snoozed, awaiting or rescued
-- keeps its turn, and its key stays taken.
--
-- The newest row (by n) of a key in turn_6 and turn_7 is the key's position; each table is
-- truncated with its scheduled slot. No row is updated, and each query reads one end of one index
-- range, so a pinned horizon does not matter.

-- The position of a key in this table.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.ordering_position_6(p_key text)
RETURNS SETOF posthaste.turn_6 LANGUAGE sql STABLE AS $f$
  SELECT * FROM posthaste.turn_6 t
    WHERE t.ordering_key = p_key ORDER BY t.ordering_key DESC, t.n DESC LIMIT 1
$f$;
-- end

-- The place of the first job in this slot that waits after this turn of the key. Only its place,
-- because the arguments of a thousand jobs may fill a gigabyte.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.next_blocked_6(p_key text, p_turn bigint)
RETURNS SETOF posthaste.place LANGUAGE sql STABLE AS $f$
  SELECT r.slot, r.turn, r.xid, r.id FROM posthaste.scheduled_6 r
    LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
   WHERE r.ordering_key = p_key AND r.turn > p_turn AND r.scheduled_at = '9999-01-01Z'
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e WHERE e.xid = r.xid AND e.id = r.id)
     AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
         p.at_due, p.at_id, p.late_done, p.exhausted)
         IS NOT TRUE
   -- mutant: the last job of a key comes first: ORDER BY r.ordering_key DESC, r.turn DESC LIMIT 1
   ORDER BY r.ordering_key, r.turn LIMIT 1
$f$;
-- end

-- Closes these jobs in this slot, where they wait, and writes them to their lanes.
-- repeat: slots 6..7
CREATE OR REPLACE FUNCTION posthaste.begin_6(p_places posthaste.place[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.closed_unclaimed_6 (xid, id, outcome) SELECT u.xid, u.id, 1
    -- mutant: a job that begins its turn also keeps waiting: FROM unnest(p_places) u WHERE false;
    FROM unnest(p_places) u WHERE u.slot = 6 /*slot*/;
  INSERT INTO posthaste.store
  SELECT a.*
    FROM unnest(p_places) u
      JOIN posthaste.scheduled_6 r ON r.xid = u.xid AND r.scheduled_at = '9999-01-01Z'
      AND r.id = u.id,
         LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(
           coalesce(r.own_queue, r.queue), (SELECT posthaste.listeners()))) s(slot),
         posthaste.reschedule_row(r, s.slot, due => clock_timestamp()) a
   WHERE u.slot = 6 /*slot*/
$f$;
-- end

-- The rows that record the ends of these turns.
CREATE OR REPLACE FUNCTION posthaste.turn_end_rows(keys text[], turns bigint[])
RETURNS SETOF posthaste.store LANGUAGE sql AS $f$
  SELECT pg_current_xact_id(), nextval('posthaste.job_id'), clock_timestamp(), clock_timestamp(),
         'infinity'::timestamptz, 1, 0, NULL::integer, 2,
         e.slot + posthaste.notify('', e.listeners),
         0::smallint, '', 'end of turn', '', NULL::text, u.ordering_key, u.turn, NULL::text,
         NULL::integer, NULL::text, NULL::text, '{}'::jsonb
    FROM (SELECT posthaste.enter_ready() AS slot, posthaste.listeners() AS listeners OFFSET 0) e,
      unnest(keys, turns) u(ordering_key, turn)
$f$;

-- Ends turns, in the transaction that ends their jobs.
CREATE OR REPLACE FUNCTION posthaste.end_turns(keys text[], turns bigint[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.store SELECT * FROM posthaste.turn_end_rows(keys, turns)
$f$;

-- The position of a key; no row if it has been free for long.
CREATE OR REPLACE FUNCTION posthaste.ordering_position(p_key text)
RETURNS TABLE (n bigint, turn bigint, is_free boolean) LANGUAGE sql STABLE AS $f$
  SELECT s.n, s.turn, s.is_free
    FROM (SELECT * FROM posthaste.ordering_position_6(p_key)
          UNION ALL SELECT * FROM posthaste.ordering_position_7(p_key)) s
    ORDER BY s.n DESC LIMIT 1
$f$;

-- Records new positions of keys.
CREATE OR REPLACE FUNCTION posthaste.note_turns(p_keys text[], p_turns bigint[], p_free boolean[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE 6 + pg_sequence_last_value('posthaste.scheduled_current'::regclass) % 2
    -- repeat: slots 6..7
    WHEN 6 /*slot*/ THEN
      INSERT INTO posthaste.turn_6 SELECT nextval('posthaste.turn'), u.*
      FROM unnest(p_turns, p_free, p_keys) u;
    -- end
  END CASE;
END $f$;

-- Copies the positions of taken keys out of a table before its truncation, and records their
-- number. A free key needs no row.
CREATE OR REPLACE FUNCTION posthaste.carry_over_turns(p_slot integer)
RETURNS void LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_kept bigint;
BEGIN
  IF p_slot = 6 THEN
    INSERT INTO posthaste.turn_7 SELECT (k.t).* FROM posthaste.taken_keys() k WHERE k.slot = 6;
  ELSE
    INSERT INTO posthaste.turn_6 SELECT (k.t).* FROM posthaste.taken_keys() k WHERE k.slot = 7;
  END IF;
  GET DIAGNOSTICS v_kept = ROW_COUNT;
  PERFORM setval('posthaste.turns_kept', v_kept);
END $f$;

-- The positions of taken keys, with the slots of their tables.
CREATE OR REPLACE FUNCTION posthaste.taken_keys()
RETURNS TABLE (slot integer, t posthaste.turn_6) LANGUAGE sql STABLE AS $f$
  SELECT b.slot, b.t
    FROM (SELECT DISTINCT ON ((a.t).ordering_key) a.slot, a.t
            FROM (SELECT 6 AS slot, x AS t FROM posthaste.turn_6 x UNION ALL
                  SELECT 7, (y.n, y.turn, y.is_free, y.ordering_key)::posthaste.turn_6
                    FROM posthaste.turn_7 y) a
           ORDER BY (a.t).ordering_key, (a.t).n DESC) b
   WHERE NOT (b.t).is_free
$f$;

-- Assigns turns to jobs in this order: the first job of a free key begins, the others wait.
CREATE OR REPLACE FUNCTION posthaste.assign_turns(p_jobs posthaste.store[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_keys text[];
  v_turns bigint[];
BEGIN
  WITH numbered AS MATERIALIZED (
    SELECT o.j AS job, (o.j).ordering_key AS key, nextval('posthaste.turn') AS turn
      FROM (SELECT u.j FROM (SELECT j, row_number() OVER () AS n FROM unnest(p_jobs) j) u
          ORDER BY u.n) o),
  free AS MATERIALIZED (
    SELECT k.key FROM (SELECT DISTINCT n.key FROM numbered n) k
     -- mutant: ordering keys are never taken: WHERE true),
     WHERE NOT EXISTS (SELECT FROM posthaste.ordering_position(k.key) s WHERE NOT s.is_free)),
  placed AS MATERIALIZED (
    SELECT n.*, n.key IN (SELECT f.key FROM free f)
      AND row_number() OVER (PARTITION BY n.key ORDER BY n.turn) = 1 AS begins FROM numbered n),
  written AS (
    INSERT INTO posthaste.store
    SELECT a.*
      FROM placed p,
        LATERAL (
          SELECT CASE WHEN p.begins
            THEN (SELECT posthaste.enter_ready()) + posthaste.notify((p.job).own_queue,
              (SELECT posthaste.listeners()))
                                             ELSE (SELECT posthaste.enter_scheduled()) END) s(slot),
           posthaste.reschedule_row(p.job, s.slot, due => CASE WHEN p.begins THEN clock_timestamp()
                 ELSE '9999-01-01Z' END, turn => p.turn) a)
  SELECT array_agg(p.key), array_agg(p.turn) INTO v_keys, v_turns FROM placed p WHERE p.begins;
  PERFORM posthaste.note_turns(v_keys, v_turns, array_fill(false, ARRAY[cardinality(v_keys)]))
    WHERE v_keys IS NOT NULL;
END $f$;

-- Whether jobs may wait for their turn in a scheduled slot.
CREATE OR REPLACE FUNCTION posthaste.may_wait_in(p_slot integer)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN p_slot = 6 + pg_sequence_last_value('posthaste.scheduled_current'::regclass) % 2
    OR NOT CASE p_slot WHEN 6 THEN posthaste.is_promoted_6() ELSE posthaste.is_promoted_7() END;
END $f$;

-- Handles ends of turns: the next job of each key begins; a key without waiting jobs becomes free.
-- The end of a turn that is not the current one changes nothing: its job ended while it waited.
CREATE OR REPLACE FUNCTION posthaste.begin_next(p_ends posthaste.store[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_keys text[];
  v_turns bigint[];
  v_free boolean[];
  v_next posthaste.place[];
  -- A slot that was carried over has no waiting jobs, but only a scan of all its rows would show
  -- it.
  v_six boolean := posthaste.may_wait_in(6);
  v_seven boolean := posthaste.may_wait_in(7);
BEGIN
  SELECT array_agg(e.key), array_agg(coalesce(n.turn, e.turn)), array_agg(n.turn IS NULL),
         array_agg((n.slot, n.turn, n.xid, n.id)::posthaste.place) FILTER (WHERE n.turn IS NOT NULL)
    INTO v_keys, v_turns, v_free, v_next
    FROM (SELECT DISTINCT (j).ordering_key AS key, (j).turn FROM unnest(p_ends) j) e
    LEFT JOIN LATERAL (SELECT w.*
        FROM (SELECT * FROM posthaste.next_blocked_6(e.key, e.turn) WHERE v_six UNION ALL
                                        SELECT * FROM posthaste.next_blocked_7(e.key, e.turn)
                                          WHERE v_seven) w ORDER BY w.turn LIMIT 1) n ON true
   WHERE EXISTS (SELECT FROM posthaste.ordering_position(e.key) s
                  -- mutant: any job's end ends the turn: WHERE NOT s.is_free);
                  WHERE s.turn = e.turn AND NOT s.is_free);
  IF v_keys IS NOT NULL THEN
    PERFORM posthaste.begin_6(v_next), posthaste.begin_7(v_next);
    -- mutant: turns are not counted:
    PERFORM posthaste.count_left(v_next);
    PERFORM posthaste.note_turns(v_keys, v_turns, v_free);
  END IF;
END $f$;

-- Assigns turns to jobs that have arrived in a slot, and returns their number. If a job has arrived
-- in an older slot meanwhile, whose transaction may have committed before one of these began, it
-- changes nothing and returns 1: the older slot comes first in the next step.
CREATE OR REPLACE FUNCTION posthaste.take_arrivals(
  p_slot integer, p_older integer[], p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs posthaste.store[];
  v_older integer;
BEGIN
  -- By transaction id, then by job id: a transaction that committed before another began has the
  -- smaller id.
  v_jobs := ARRAY(SELECT t FROM posthaste.remove_unclaimed(p_slot, '', 0, p_limit) t
                   ORDER BY t.xid, t.id);
  IF cardinality(v_jobs) > 0 THEN
    FOREACH v_older IN ARRAY p_older LOOP
      IF EXISTS (SELECT FROM posthaste.remove_unclaimed(v_older, '', 0, 1)) THEN
        RAISE EXCEPTION USING ERRCODE = 'PH001', MESSAGE = 'posthaste: an older slot comes first';
      END IF;
    END LOOP;
    PERFORM posthaste.assign_turns(v_jobs);
  END IF;
  RETURN cardinality(v_jobs);
EXCEPTION WHEN SQLSTATE 'PH001' THEN
  RETURN 1;
END $f$;

-- One step of the ordering: handles ended turns, at most 200 in each slot (each may start a job of
-- a megabyte), then the jobs that have arrived in the oldest slot with such jobs, at most p_limit.
-- Returns the number of both. A lane that another session holds is left for the next step.
CREATE OR REPLACE FUNCTION posthaste.advance_ordering(p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slots integer[] := posthaste.scan_slots();
  v_jobs posthaste.store[];
  v_all bigint := 0;
  v_here bigint := 0;
BEGIN
  -- The promoter's lock: waiting jobs must not be carried over meanwhile.
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  -- A crash that loses this commit also loses every commit after it.
  PERFORM set_config('synchronous_commit', 'off', true);
  IF pg_try_advisory_xact_lock(1885893475, posthaste.lane_key('', 1)) THEN
    FOR i IN 1 .. cardinality(v_slots) LOOP
      v_jobs := ARRAY(
        SELECT t FROM posthaste.remove_unclaimed(v_slots[i], '', 1, least(p_limit, 200)) t);
      IF cardinality(v_jobs) > 0 THEN
        PERFORM posthaste.begin_next(v_jobs);
        v_all := v_all + cardinality(v_jobs);
      END IF;
    END LOOP;
  END IF;
  IF pg_try_advisory_xact_lock(1885893475, posthaste.lane_key('', 0)) THEN
    FOR i IN 1 .. cardinality(v_slots) LOOP
      v_here := posthaste.take_arrivals(v_slots[i], v_slots[1 : i - 1], p_limit);
      EXIT WHEN v_here > 0;
    END LOOP;
  END IF;
  RETURN v_all + v_here;
END $f$;
