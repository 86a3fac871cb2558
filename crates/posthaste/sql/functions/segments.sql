-- The ready log: segments are started, sealed when all their jobs are claimed, and truncated when
-- all are closed.

-- Compares rows instead of counting them: checks at most p_batches batches after p_batch, and stops
-- at the first with an open job. In a sealed slot every job belongs to a batch. o_batch: where to
-- continue next time (all batches up to it are closed for good). o_done: the end was reached.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.verify_0(
  p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch)
      FROM (SELECT batch FROM posthaste.claim_0
        WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_0 c
        WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
               OFFSET 0) c
   -- mutant: truncation counts closed rows instead of comparing them (3 lines):
   --   | WHERE (SELECT count(*) FROM posthaste.job_done_0)
   --   |     < (SELECT sum(o.n) FROM posthaste.claim_0 o
   --   |         WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = o.batch))
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_0(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a
                      WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_0 WHERE batch > o_batch);
END $f$;
-- end

-- Moves running jobs out of this slot: each gets a row in posthaste.in_flight with the same fence,
-- so that its worker finishes it there. A job that another session is closing is skipped.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.move_running_0(p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_in_flight bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_0 c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w
                 WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_0(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
       LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.in_flight
      SELECT h.*
        FROM posthaste.close_0(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_in_flight(j, 'running', worker => v_open.worker,
                          token => v_open.token) h;
      IF FOUND THEN
        v_in_flight := v_in_flight + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_in_flight;
END $f$;
-- end

-- Truncates the slot and returns NULL, or returns the holder of a lock: a transaction older than a
-- second, before any lock is requested, or '' for a younger one.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.truncate_0() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_0', 'posthaste.claim_0', 'posthaste.job_done_0',
                               'posthaste.closed_unclaimed_0', 'posthaste.batch_done_0',
                               'posthaste.batch_split_0', 'posthaste.counted_0',
                               'posthaste.opened_0', 'posthaste.left_0'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  -- gate: truncation waits before it locks the slot (insert): PERFORM posthaste.gate(1);
  BEGIN
    LOCK TABLE posthaste.ready_0, posthaste.claim_0, posthaste.job_done_0,
      posthaste.closed_unclaimed_0, posthaste.batch_done_0, posthaste.batch_split_0,
      posthaste.counted_0, posthaste.opened_0, posthaste.left_0 IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Each truncation leaves a dead row in pg_class for the table, its TOAST table and each of their
  -- indexes, so tables without pages are skipped.
  IF pg_relation_size('posthaste.ready_0') > 0 THEN TRUNCATE posthaste.ready_0; END IF;
  IF pg_relation_size('posthaste.claim_0') > 0 THEN TRUNCATE posthaste.claim_0; END IF;
  IF pg_relation_size('posthaste.job_done_0') > 0 THEN TRUNCATE posthaste.job_done_0; END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_0') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_0; END IF;
  IF pg_relation_size('posthaste.batch_done_0') > 0 THEN TRUNCATE posthaste.batch_done_0; END IF;
  IF pg_relation_size('posthaste.batch_split_0') > 0 THEN TRUNCATE posthaste.batch_split_0; END IF;
  IF pg_relation_size('posthaste.counted_0') > 0 THEN TRUNCATE posthaste.counted_0; END IF;
  IF pg_relation_size('posthaste.opened_0') > 0 THEN TRUNCATE posthaste.opened_0; END IF;
  IF pg_relation_size('posthaste.left_0') > 0 THEN TRUNCATE posthaste.left_0; END IF;
  RETURN NULL;
END $f$;
-- end

-- Starts a new segment when the current one has grown beyond p_bytes, or has rows of p_lanes
-- lanes of one queue. Returns 'rotated', 'full' (the ready log has no free slot: something pins the
-- oldest segment) or 'small'.
CREATE OR REPLACE FUNCTION posthaste.rotate(p_bytes bigint, p_lanes integer DEFAULT NULL)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_current bigint;
  v_slot text;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 'busy';
  END IF;
  v_current := pg_sequence_last_value('posthaste.ready_current'::regclass);
  v_slot := (v_current % 4)::text;
  IF pg_table_size(('posthaste.ready_' || v_slot)::regclass)
    + pg_table_size(('posthaste.claim_' || v_slot)::regclass)
     + pg_table_size(('posthaste.job_done_' || v_slot)::regclass) <= p_bytes
     AND (p_lanes IS NULL OR NOT posthaste.has_lanes(v_slot::integer, p_lanes)) THEN
    RETURN 'small';
  END IF;
  -- mutant: rotation does not check ready_low: IF false THEN
  IF v_current + 1 - pg_sequence_last_value('posthaste.ready_low'::regclass) >= 4 THEN
    RETURN 'full';
  END IF;
  PERFORM setval('posthaste.ready_current', v_current + 1);
  RETURN 'rotated';
END $f$;

-- Seals the oldest segment that claims still read, once every job in it is claimed. The exclusive
-- lock proves that no enqueuer is in it; later enqueuers find ready_scan advanced and use a newer
-- segment. o_blocker: a transaction older than a second with jobs in the segment.
CREATE OR REPLACE FUNCTION posthaste.seal(OUT o_sealed boolean, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan bigint;
BEGIN
  o_sealed := false;
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN;
  END IF;
  v_scan := pg_sequence_last_value('posthaste.ready_scan'::regclass);
  IF v_scan >= pg_sequence_last_value('posthaste.ready_current'::regclass) THEN
    RETURN;
  END IF;
  -- mutant: sealing takes no exclusive lock: IF false THEN
  IF NOT pg_try_advisory_xact_lock(1885893473, v_scan::integer) THEN
    o_blocker := posthaste.lock_holder('{}', 1885893473, v_scan);
    RETURN;
  END IF;
  -- mutant: sealing does not check for unclaimed jobs: IF false THEN
  IF (SELECT l.o_queue FROM posthaste.pending_lane((v_scan % 4)::integer) l) IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM setval('posthaste.ready_scan', v_scan + 1);
  o_sealed := true;
END $f$;

-- The positions of the segments.
CREATE OR REPLACE FUNCTION posthaste.segments(
  OUT ready_low bigint, OUT ready_scan bigint, OUT ready_current bigint, OUT overflow_low bigint,
  OUT overflow_scan bigint, OUT overflow_current bigint, OUT scheduled_low bigint,
  OUT scheduled_current bigint)
LANGUAGE sql STABLE AS $f$
  SELECT pg_sequence_last_value('posthaste.ready_low'::regclass),
         pg_sequence_last_value('posthaste.ready_scan'::regclass),
         pg_sequence_last_value('posthaste.ready_current'::regclass),
         pg_sequence_last_value('posthaste.overflow_low'::regclass),
         pg_sequence_last_value('posthaste.overflow_scan'::regclass),
         pg_sequence_last_value('posthaste.overflow_current'::regclass),
         pg_sequence_last_value('posthaste.scheduled_low'::regclass),
         pg_sequence_last_value('posthaste.scheduled_current'::regclass)
$f$;

-- Verifies at most p_batches batches of a slot after p_batch.
CREATE OR REPLACE FUNCTION posthaste.verify(
  p_slot integer, p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN
      SELECT v.* INTO o_batch, o_done FROM posthaste.verify_0(p_batch, p_batches) v;
    -- end
  END CASE;
END $f$;

-- Truncates a slot, or returns the holder of a lock.
CREATE OR REPLACE FUNCTION posthaste.truncate(p_slot integer) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN RETURN posthaste.truncate_0();
    -- end
  END CASE;
END $f$;

-- Reclaims the oldest segment of the ready log if it is sealed and every row of it is closed.
-- p_batch: how far earlier calls have verified it. o_state: 'open' (all batches up to o_batch are
-- closed), 'locked' (o_blocker holds a lock), 'truncated', 'none'.
CREATE OR REPLACE FUNCTION posthaste.reclaim(
  p_low bigint, p_batch bigint, p_batches integer, OUT o_state text, OUT o_batch bigint,
  OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot integer := p_low % 4;
  v_done boolean;
BEGIN
  o_state := 'none'; o_batch := 0;
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1)
     OR p_low <> pg_sequence_last_value('posthaste.ready_low'::regclass)
       OR p_low >= pg_sequence_last_value('posthaste.ready_scan'::regclass) THEN
    RETURN;
  END IF;
  SELECT v.o_batch, v.o_done INTO o_batch, v_done
    FROM posthaste.verify(v_slot, p_batch, p_batches) v;
  -- mutant: truncation does not check for open jobs: IF false THEN
  IF NOT v_done THEN
    o_state := 'open';
    RETURN;
  END IF;
  o_blocker := posthaste.truncate(v_slot);
  IF o_blocker IS NOT NULL THEN
    o_state := 'locked';
    RETURN;
  END IF;
  -- After a crash between this and the commit, the rows are there again, with the claims and
  -- acknowledgements that mark them as finished.
  PERFORM setval('posthaste.ready_low', p_low + 1);
  o_state := 'truncated';
END $f$;

-- Moves running jobs out of a slot, so that it can be truncated.
CREATE OR REPLACE FUNCTION posthaste.move_running(p_slot integer, p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN RETURN posthaste.move_running_0(p_batch, p_limit);
    -- end
  END CASE;
END $f$;
