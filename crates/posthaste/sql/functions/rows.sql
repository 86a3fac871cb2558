-- Rows: converts a job between the tables that it moves through, and selects the rows of a batch.
--
-- The planner inlines the conversions in FROM, so they cost nothing; their arguments must not
-- contain sub-selects there.

-- The row with which a job is written to a slot again, with those fields changed that are given. A
-- job with an ordering key and without a turn goes to the internal lane that assigns turns
-- (functions/ordering.sql).
CREATE OR REPLACE FUNCTION posthaste.reschedule_row(
  job posthaste.store, slot smallint, due timestamptz DEFAULT NULL, attempt integer DEFAULT NULL,
  crashes smallint DEFAULT NULL, error text DEFAULT NULL, turn bigint DEFAULT NULL)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT pg_current_xact_id(), job.id, job.enqueued_at, coalesce(due, job.scheduled_at),
         job.expires_at,
         CASE WHEN w.needs_turn THEN 0 ELSE coalesce(job.own_priority, job.priority) END,
         coalesce(attempt, job.attempt), job.max_attempts, job.kwargs_bytes, slot,
         coalesce(crashes, job.crashes),
         CASE WHEN w.needs_turn THEN '' ELSE coalesce(job.own_queue, job.queue) END,
         job.name, job.tag,
         job.unique_key, job.ordering_key, coalesce(turn, job.turn),
         CASE WHEN w.needs_turn THEN coalesce(job.own_queue, job.queue) END,
         CASE WHEN w.needs_turn THEN coalesce(job.own_priority, job.priority) END,
         coalesce(error, job.last_error), job.trace, job.kwargs
    FROM (SELECT job.ordering_key IS NOT NULL AND coalesce(turn, job.turn) IS NULL AS needs_turn) w
$f$;

-- The row of a job in posthaste.dead; its state is dead, expired, discarded or cancelled.
CREATE OR REPLACE FUNCTION posthaste.to_dead(job posthaste.store, state text)
RETURNS SETOF posthaste.dead LANGUAGE sql STABLE AS $f$
  SELECT job.id, clock_timestamp(), job.enqueued_at, job.scheduled_at, job.expires_at,
         coalesce(job.own_priority, job.priority), job.attempt,
         job.max_attempts, job.kwargs_bytes, job.crashes, state, coalesce(job.own_queue, job.queue),
         job.name, job.tag, job.unique_key,
         job.ordering_key, job.turn, job.last_error, job.trace, job.kwargs
$f$;

-- The row of a job in posthaste.in_flight.
CREATE OR REPLACE FUNCTION posthaste.to_in_flight(
  job posthaste.store, state text, until timestamptz DEFAULT NULL, worker bigint DEFAULT NULL,
  token uuid DEFAULT NULL)
RETURNS SETOF posthaste.in_flight LANGUAGE sql STABLE AS $f$
  SELECT job.id, until, job.enqueued_at, job.scheduled_at, job.expires_at, worker, token,
         job.priority, job.attempt, job.max_attempts,
         job.kwargs_bytes, job.crashes, state, job.queue, job.name, job.tag, job.unique_key,
         job.ordering_key, job.turn, job.last_error, job.trace, job.kwargs
$f$;

-- When a quarantined job may run. Jobs whose worker died once are due at the epoch, so that the
-- index in_flight_quarantined returns them by id: that is the order of their lane, which an ordered
-- relay must keep. Jobs with more deaths come after them.
CREATE OR REPLACE FUNCTION posthaste.quarantine_until(crashes smallint)
RETURNS timestamptz LANGUAGE sql VOLATILE AS $f$
  SELECT CASE WHEN crashes > 1 THEN clock_timestamp() ELSE 'epoch' END
$f$;

-- A job of posthaste.in_flight as a row of posthaste.store, without a slot and a transaction id.
CREATE OR REPLACE FUNCTION posthaste.from_in_flight(h posthaste.in_flight)
RETURNS posthaste.store LANGUAGE sql IMMUTABLE AS $f$
  SELECT ROW(NULL::xid8, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt,
             h.max_attempts, h.kwargs_bytes,
             -1::smallint, h.crashes, h.queue, h.name, h.tag, h.unique_key, h.ordering_key, h.turn,
             NULL::text, NULL::integer, h.last_error,
             h.trace, h.kwargs)::posthaste.store
$f$;

-- Releases the unique keys and turns of jobs that are written to posthaste.dead, and deletes
-- requests to cancel them.
CREATE OR REPLACE FUNCTION posthaste.release_dead() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  DELETE FROM posthaste.unique_key u USING new_dead b WHERE u.key = b.unique_key AND u.id = b.id;
  PERFORM posthaste.end_turns(array_agg(b.ordering_key), array_agg(b.turn)) FROM new_dead b
    WHERE b.turn IS NOT NULL HAVING count(*) > 0;
  IF EXISTS (SELECT FROM posthaste.cancelling) THEN
    DELETE FROM posthaste.cancelling c USING new_dead b WHERE c.id = b.id;
  END IF;
  RETURN NULL;
END $f$;

-- Whether a row of a lane is claimed, by the lane's cursor, its newest claim row.
CREATE OR REPLACE FUNCTION posthaste.is_claimed(
  xid xid8, id bigint, lo pg_snapshot, hi pg_snapshot, to_xid xid8, to_id bigint, exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT pg_visible_in_snapshot(xid, lo)
    OR (pg_visible_in_snapshot(xid, hi) AND (exhausted OR (xid, id) <= (to_xid, to_id)))
$f$;

-- Whether the promoter has passed a scheduled row, by the fields of its newest page
-- (functions/promote.sql).
CREATE OR REPLACE FUNCTION posthaste.promoted(
  xid xid8, due timestamptz, id bigint, t_lo timestamptz, t_hi timestamptz, lo pg_snapshot,
  hi pg_snapshot, at_xid xid8, at_due timestamptz, at_id bigint, late_done boolean,
  exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT CASE
    WHEN due <= t_lo AND pg_visible_in_snapshot(xid, lo) THEN true
    WHEN due > t_hi OR NOT pg_visible_in_snapshot(xid, hi) THEN false
    WHEN exhausted THEN true
    WHEN due <= t_lo THEN late_done OR (xid, due, id) <= (at_xid, at_due, at_id)
    ELSE late_done AND (due, id) <= (at_due, at_id)
  END
$f$;

-- The rows of a batch: those of its window between its bounds; the same rows at each call. Each
-- part is one exact index range: a row comparison as upper bound does not stop a btree scan inside
-- one transaction's rows, and would read the rest of a bulk insert. OFFSET 0 keeps each part a
-- parameterised index scan, even if the planner takes the table for empty.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.batch_rows_0(p_batch bigint, p_token uuid)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid
               ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      -- mutant: a fence token is reused:
      --   | FROM posthaste.claim_0 c WHERE c.batch = p_batch OFFSET 0) c,
      FROM posthaste.claim_0 c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id
             ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id
             ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid
        AND r.id > c.low_id
        -- mutant: a batch has no upper end (2 lines): AND c.low_xid <= c.to_xid
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807
            WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid
        AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        -- mutant: a batch has no upper end: AND c.to_xid > c.low_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;
-- end

-- Running jobs of this slot. A function, because planning six such queries inlined into a view
-- costs more than reading their rows.
-- repeat: slots 0..5
CREATE OR REPLACE FUNCTION posthaste.running_0()
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_0 c
             WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
               OFFSET 0) c,
           LATERAL posthaste.batch_rows_0(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id);
END $f$;
-- end
