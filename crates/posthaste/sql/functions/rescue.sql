-- Maintenance: rescue. Jobs of dead workers are quarantined and run alone.

-- Takes all open jobs of a dead worker's batch away from it and quarantines them, to run alone
-- once. NULL: an open transaction is closing one of them.
CREATE OR REPLACE FUNCTION posthaste.quarantine(
  p_slot integer, p_batch bigint, p_token uuid, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_kinds smallint[] := array_fill(7::smallint, ARRAY[cardinality(p_ids)]);
  v_jobs posthaste.store[];
  v_worker bigint := posthaste.worker_of(p_slot::smallint, p_batch, p_token, p_ids);
BEGIN
  CASE p_slot
    -- repeat: slots 0..5
    WHEN 0 /*slot*/ THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_0(p_batch, p_token, p_ids, v_kinds) j);
    -- end
  END CASE;
  INSERT INTO posthaste.in_flight
  SELECT h.*
    FROM unnest(v_jobs) j,
         posthaste.reschedule_row(j, j.slot, crashes => (j.crashes + 1)::smallint,
        error => 'its worker died while it had this job') a,
         posthaste.to_in_flight(a, 'quarantined', posthaste.quarantine_until(a.crashes)) h;
  PERFORM posthaste.note_attempts(v_jobs, v_worker, p_ids, v_kinds, NULL, NULL, NULL);
  RETURN cardinality(v_jobs);
EXCEPTION WHEN lock_not_available THEN
  RETURN NULL;
END $f$;

-- Takes the jobs of a dead worker away from it. The caller has seen no heartbeat for long enough by
-- its own clock; this only checks that there was none since. Idempotent: repeated for a while,
-- because a claim of the dead worker may still commit.
CREATE OR REPLACE FUNCTION posthaste.rescue(p_worker bigint, p_beat bigint)
RETURNS bigint LANGUAGE plpgsql
SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_open record;
  v_rows bigint;
  v_id bigint;
  v_jobs bigint := 0;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 3) THEN
    RETURN 0;
  END IF;
  PERFORM set_config('lock_timeout', '50ms', true);
  -- bug: no dead worker is found (3 lines): IF true THEN
  UPDATE posthaste.worker SET stopped_at = coalesce(stopped_at, clock_timestamp())
    -- mutant: rescue does not check the heartbeat again: WHERE id = p_worker;
    WHERE id = p_worker AND beat = p_beat;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  FOR v_open IN SELECT o.* FROM posthaste.open_jobs(p_worker, NULL) o LOOP
    v_rows := posthaste.quarantine(v_open.slot, v_open.batch, v_open.token, v_open.ids);
    -- an open transaction is closing one of them: go job by job and leave that one for later
    IF v_rows IS NULL THEN
      v_rows := 0;
      FOREACH v_id IN ARRAY v_open.ids LOOP
        v_rows := v_rows
          + coalesce(posthaste.quarantine(v_open.slot, v_open.batch, v_open.token, ARRAY[v_id]), 0);
      END LOOP;
    END IF;
    v_jobs := v_jobs + v_rows;
  END LOOP;
  RETURN v_jobs + posthaste.quarantine_in_flight(p_worker);
END $f$;

-- Jobs in flight of a dead worker. One that was quarantined already ran alone and killed its worker
-- again: that counts as an attempt, delays its next run, and ends the job after the last attempt.
CREATE OR REPLACE FUNCTION posthaste.quarantine_in_flight(p_worker bigint)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  h posthaste.in_flight;
  v_jobs bigint := 0;
BEGIN
  FOR h IN SELECT * FROM posthaste.in_flight
    WHERE worker = p_worker AND state = 'running' FOR UPDATE SKIP LOCKED LOOP
    PERFORM posthaste.note_attempts(ARRAY[posthaste.from_in_flight(h)], p_worker, ARRAY[h.id],
        '{7}', NULL, NULL, NULL);
    IF h.crashes > 0 AND h.attempt + 1 >= h.max_attempts THEN
      DELETE FROM posthaste.in_flight WHERE id = h.id;
      h.attempt := h.attempt + 1; h.crashes := h.crashes + 1;
      h.last_error := 'its worker died ' || h.crashes || ' times while it had this job';
      INSERT INTO posthaste.dead SELECT d.*
        FROM posthaste.to_dead(posthaste.from_in_flight(h), 'dead') d ON CONFLICT (id) DO NOTHING;
    ELSE
      UPDATE posthaste.in_flight SET state = 'quarantined', worker = NULL, token = NULL,
             crashes = least(h.crashes + 1, 32000),
             attempt = h.attempt + CASE WHEN h.crashes > 0 THEN 1 ELSE 0 END,
             until = posthaste.quarantine_until((h.crashes + 1)::smallint)
                     + CASE WHEN h.crashes > 0
                         THEN least(interval '1 s' * power(2, least(h.crashes, 10)),
                           interval '5 min') ELSE interval '0' END,
             last_error = 'its worker died while it had this job'
       WHERE id = h.id;
    END IF;
    v_jobs := v_jobs + 1;
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Hands out one quarantined job of a queue, to run while nothing else runs in the worker's process.
CREATE OR REPLACE FUNCTION posthaste.claim_quarantined(p_queue text, p_worker bigint, p_token uuid)
RETURNS SETOF posthaste.claimed LANGUAGE sql AS $f$
  UPDATE posthaste.in_flight h SET state = 'running', worker = p_worker, token = p_token
   WHERE h.id = (SELECT s.id FROM posthaste.in_flight s
                  WHERE s.state = 'quarantined' AND s.queue = p_queue
                    AND s.until <= clock_timestamp() AND s.expires_at > clock_timestamp()
                  ORDER BY s.until, s.id LIMIT 1 FOR UPDATE SKIP LOCKED)
     AND EXISTS (SELECT FROM posthaste.worker w WHERE w.id = p_worker AND w.stopped_at IS NULL
                  AND w.identity = posthaste.session_identity())
     AND NOT EXISTS (SELECT FROM posthaste.queue q
         WHERE q.name = p_queue AND q.paused_at IS NOT NULL)
  RETURNING (-1)::smallint, 0::bigint, h.id, h.enqueued_at, h.scheduled_at, h.expires_at,
            h.priority, h.attempt, h.max_attempts, h.crashes,
            h.name, h.tag, h.unique_key, h.ordering_key, h.trace, h.kwargs
$f$;

-- Queues with quarantined jobs that are due.
CREATE OR REPLACE FUNCTION posthaste.quarantine_queues()
RETURNS SETOF text LANGUAGE sql STABLE AS $f$
  SELECT DISTINCT h.queue FROM posthaste.in_flight h
   WHERE h.state = 'quarantined' AND h.until <= clock_timestamp()
     AND h.expires_at > clock_timestamp()
     AND NOT EXISTS (SELECT FROM posthaste.queue q
         WHERE q.name = h.queue AND q.paused_at IS NOT NULL)
$f$;
