-- Rows: a job in the shapes of the tables that it moves through, and which rows are meant.

-- A job in the shapes of the tables that it moves through: here, and nowhere else, their columns
-- are listed. The planner inlines these functions where they stand in FROM, so they cost nothing;
-- none of their arguments may hold a sub-select there.
--
-- For a slot that it is written into once more, as it is or with something of it changed. One with
-- a key and without a turn is on its way to be given one.
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

-- For posthaste.dead: kept as dead, expired, discarded or cancelled.
CREATE OR REPLACE FUNCTION posthaste.to_dead(job posthaste.store, state text)
RETURNS SETOF posthaste.dead LANGUAGE sql STABLE AS $f$
  SELECT job.id, clock_timestamp(), job.enqueued_at, job.scheduled_at, job.expires_at,
         coalesce(job.own_priority, job.priority), job.attempt,
         job.max_attempts, job.kwargs_bytes, job.crashes, state, coalesce(job.own_queue, job.queue),
         job.name, job.tag, job.unique_key,
         job.ordering_key, job.turn, job.last_error, job.trace, job.kwargs
$f$;

-- For posthaste.in_flight.
CREATE OR REPLACE FUNCTION posthaste.to_in_flight(
  job posthaste.store, state text, until timestamptz DEFAULT NULL, worker bigint DEFAULT NULL,
  token uuid DEFAULT NULL)
RETURNS SETOF posthaste.in_flight LANGUAGE sql STABLE AS $f$
  SELECT job.id, until, job.enqueued_at, job.scheduled_at, job.expires_at, worker, token,
         job.priority, job.attempt, job.max_attempts,
         job.kwargs_bytes, job.crashes, state, job.queue, job.name, job.tag, job.unique_key,
         job.ordering_key, job.turn, job.last_error, job.trace, job.kwargs
$f$;

-- When a quarantined job may be run. Those of one death each are due since ever, so that
-- in_flight_quarantined has them by their ids: that is the order of their lane, which an ordered
-- relay must keep wherever they were found, in a batch, among what ran for long, or given back. The
-- one that killed more often stands behind them.
CREATE OR REPLACE FUNCTION posthaste.quarantine_until(crashes smallint)
RETURNS timestamptz LANGUAGE sql VOLATILE AS $f$
  SELECT CASE WHEN crashes > 1 THEN clock_timestamp() ELSE 'epoch' END
$f$;

-- Out of posthaste.in_flight: in no slot yet, written by nobody.
CREATE OR REPLACE FUNCTION posthaste.from_in_flight(h posthaste.in_flight)
RETURNS posthaste.store LANGUAGE sql IMMUTABLE AS $f$
  SELECT ROW(NULL::xid8, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt,
             h.max_attempts, h.kwargs_bytes,
             -1::smallint, h.crashes, h.queue, h.name, h.tag, h.unique_key, h.ordering_key, h.turn,
             NULL::text, NULL::integer, h.last_error,
             h.trace, h.kwargs)::posthaste.store
$f$;

-- A dead job holds no key and no turn any more, and is not to be cancelled, whichever function
-- dead-lettered it.
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

-- Whether a row of a lane is behind its cursor, the newest claim row.
CREATE OR REPLACE FUNCTION posthaste.is_claimed(
  xid xid8, id bigint, lo pg_snapshot, hi pg_snapshot, to_xid xid8, to_id bigint, exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT pg_visible_in_snapshot(xid, lo)
    OR (pg_visible_in_snapshot(xid, hi) AND (exhausted OR (xid, id) <= (to_xid, to_id)))
$f$;

-- Whether the promoter is past a scheduled row, given its newest page (functions/promote.sql says
-- what the fields mean).
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

-- The rows of a batch: its window cut by its edges. Deterministic, however often it is asked. Each
-- part is one exact index range: a row comparison as upper bound does not stop a btree scan inside
-- one transaction's rows, and would walk the rest of a bulk insert. OFFSET 0 keeps each part a
-- parameterised look-up whatever the planner thinks of an empty table.
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

-- Jobs of this slot that a worker has now. A function, because the plan of six such searches
-- inlined into a view costs more than its rows.
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
