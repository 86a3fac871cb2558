-- Confirm: jobs whose effect happens elsewhere, and the ids that external receivers see.

-- The id by which external receivers drop duplicates: the epoch of the job's id and the id, as a
-- UUID (version 8).
CREATE OR REPLACE FUNCTION posthaste.delivery_of(epoch text, job_id bigint)
RETURNS uuid LANGUAGE sql IMMUTABLE AS $f$
  SELECT (substr(epoch, 1, 12) || '8' || substr(epoch, 13, 3) || 'a'
      || lpad(to_hex(job_id), 15, '0'))::uuid
$f$;

CREATE OR REPLACE FUNCTION posthaste.delivery_id(job_id bigint)
RETURNS uuid LANGUAGE sql STABLE AS $f$
  SELECT posthaste.delivery_of(i.value, job_id) FROM posthaste.epoch i
    WHERE i.first_id <= job_id ORDER BY i.n DESC LIMIT 1
$f$;

-- The job of a delivery id that a receiver saw: the job's own, or that of a row of
-- posthaste.outbox, which keeps its key until the job is done. NULL: an id of another database, or
-- a forgotten one.
CREATE OR REPLACE FUNCTION posthaste.job_of_delivery(delivery_id uuid)
RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce((SELECT d.id
        FROM (SELECT ('x0'
          || substr(replace(delivery_id::text, '-', ''), 18, 15))::bit(64)::bigint AS id) d
                    WHERE posthaste.delivery_id(d.id) = delivery_id),
                  (SELECT u.id FROM posthaste.unique_key u WHERE u.key = 'outbox:' || delivery_id))
$f$;

-- Confirms the effect of a job that awaits it; usable from any language, best in the transaction of
-- the effect. Returns true if the id belongs to this database (a second confirmation does nothing);
-- false if not, or if it belongs to a row of posthaste.outbox that is done.
CREATE OR REPLACE FUNCTION posthaste.confirm(delivery_id uuid)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_id bigint := posthaste.job_of_delivery(delivery_id);
  v_in_flight posthaste.in_flight;
BEGIN
  IF v_id IS NULL THEN
    RETURN false;
  END IF;
  DELETE FROM posthaste.in_flight h WHERE h.id = v_id AND h.state = 'awaiting'
    RETURNING h.* INTO v_in_flight;
  IF FOUND THEN
    DELETE FROM posthaste.unique_key u WHERE u.key = v_in_flight.unique_key AND u.id = v_id;
    IF v_in_flight.turn IS NOT NULL THEN
      PERFORM posthaste.end_turns(ARRAY[v_in_flight.ordering_key], ARRAY[v_in_flight.turn]);
    END IF;
    INSERT INTO posthaste.finished SELECT f.*
      FROM posthaste.to_finished(posthaste.from_in_flight(v_in_flight), NULL) f;
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
      VALUES (v_in_flight.queue, v_in_flight.priority, v_in_flight.name, v_in_flight.tag,
        'completed_total', 1);
  ELSE
    -- bug: a confirmation is not recorded: NULL;
    INSERT INTO posthaste.confirmed (id) VALUES (v_id) ON CONFLICT DO NOTHING;
  END IF;
  RETURN true;
END $f$;

-- Ends awaited jobs due by p_until that were confirmed, that is, by a transaction that could not
-- see the job in posthaste.in_flight.
CREATE OR REPLACE FUNCTION posthaste.confirm_in_flight(p_until timestamptz, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs bigint;
  v_keys text[];
  v_turns bigint[];
BEGIN
  WITH met AS (
    SELECT h.id FROM posthaste.in_flight h
     WHERE h.state = 'awaiting' AND h.until <= p_until AND EXISTS (SELECT FROM posthaste.confirmed c
         WHERE c.id = h.id)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  ended AS (DELETE FROM posthaste.in_flight h USING met
      WHERE h.id = met.id RETURNING h.id, h.unique_key, h.ordering_key, h.turn,
      posthaste.from_in_flight(h) AS job),
  finished AS (INSERT INTO posthaste.finished SELECT f.*
      FROM ended e, posthaste.to_finished(e.job, NULL) f),
  noted AS (
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT (e.job).queue, (e.job).priority, (e.job).name, (e.job).tag, 'completed_total', 1
      FROM ended e),
  used AS (DELETE FROM posthaste.confirmed c USING met WHERE c.id = met.id),
  freed AS (DELETE FROM posthaste.unique_key u USING ended e
      WHERE u.key = e.unique_key AND u.id = e.id)
  SELECT count(*), array_agg(e.ordering_key) FILTER (WHERE e.turn IS NOT NULL),
         array_agg(e.turn) FILTER (WHERE e.turn IS NOT NULL)
    INTO v_jobs, v_keys, v_turns FROM ended e;
  IF v_keys IS NOT NULL THEN
    PERFORM posthaste.end_turns(v_keys, v_turns);
  END IF;
  RETURN v_jobs;
END $f$;

-- Awaited jobs that were not confirmed in time are retried, which counts as an attempt. Expired
-- jobs in flight are stored as expired.
CREATE OR REPLACE FUNCTION posthaste.retry_overdue(p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_jobs posthaste.store[];
  v_ids bigint[];
  v_kinds smallint[];
  v_attempts integer[];
  v_states text[];
  v_errors text[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.confirm_in_flight(clock_timestamp(), p_limit);
  WITH late AS (
    SELECT h.id FROM posthaste.in_flight h
     WHERE (h.state = 'awaiting' AND h.until <= v_now)
       OR (h.state IN ('awaiting', 'quarantined') AND h.expires_at <= v_now)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  freed AS (
    DELETE FROM posthaste.in_flight h USING late WHERE h.id = late.id
    RETURNING h.id, posthaste.from_in_flight(h) AS job, h.expires_at <= v_now AS has_expired,
      h.attempt + 1 AS attempt, h.max_attempts)
  SELECT array_agg(f.job), array_agg(f.id),
         array_agg(CASE WHEN f.has_expired OR f.attempt >= f.max_attempts THEN 2
               ELSE 1 END::smallint),
         array_agg(CASE WHEN f.has_expired THEN f.attempt - 1 ELSE f.attempt END),
         array_agg(CASE WHEN f.has_expired THEN 'expired' ELSE 'dead' END),
         array_agg(CASE WHEN NOT f.has_expired THEN 'it was not confirmed in time' END)
    INTO v_jobs, v_ids, v_kinds, v_attempts, v_states, v_errors FROM freed f;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.route_closed_jobs(v_jobs, v_ids, v_kinds, v_attempts,
      array_fill(interval '0', ARRAY[cardinality(v_ids)]), NULL, v_states, v_errors);
  PERFORM posthaste.note_attempts(v_jobs, NULL, v_ids, v_kinds, v_attempts, v_states, v_errors);
  RETURN cardinality(v_ids);
END $f$;

-- Called in the transaction of the effect. Returns true the first time: apply the effect. Returns
-- false if it has been applied. A concurrent call waits until the other's transaction ends. Also
-- confirms the job if it awaits that.
CREATE OR REPLACE FUNCTION posthaste.receive(delivery_id uuid)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_is_first boolean;
BEGIN
  INSERT INTO posthaste.inbox AS i (delivery_id) VALUES (delivery_id) ON CONFLICT DO NOTHING;
  v_is_first := FOUND;
  PERFORM posthaste.confirm(delivery_id);
  RETURN v_is_first;
END $f$;
