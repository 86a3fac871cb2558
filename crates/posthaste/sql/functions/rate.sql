-- Rates: limits how many jobs of a queue are claimed per period.

-- A rate is a token bucket of q.burst jobs, refilled by one every q.per / q.rate. Its cell contains
-- the time when it will be full again, in microseconds since 1970. The cell is a sequence: it
-- leaves no dead rows for a pinned horizon, and a claim that is rolled back has still used up its
-- jobs.
CREATE OR REPLACE FUNCTION posthaste.full_at(
  q posthaste.queue, OUT o_full numeric, OUT o_now numeric, OUT o_step numeric)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  o_now := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  o_step := extract(epoch FROM q.per) * 1000000 / q.rate;
  o_full := least(greatest(pg_sequence_last_value(q.pace), o_now), o_now + o_step * q.burst);
END $f$;

-- How many jobs of the queue may be claimed now. From here until the end of the transaction, other
-- claimers of the queue wait. A bucket below empty was written while the clock was ahead, and is
-- set to empty: the cell must be written, because the limit in full_at() advances with the clock.
CREATE OR REPLACE FUNCTION posthaste.rate_allowance(q posthaste.queue)
RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  f record;
BEGIN
  PERFORM pg_advisory_xact_lock(1885893479, q.pace::oid::integer);
  f := posthaste.full_at(q);
  IF pg_sequence_last_value(q.pace) > ceil(f.o_full) THEN
    PERFORM setval(q.pace, ceil(f.o_full)::bigint);
  END IF;
  RETURN floor((f.o_now - f.o_full) / f.o_step + q.burst);
END $f$;

-- The time until the next job may be claimed, in milliseconds.
CREATE OR REPLACE FUNCTION posthaste.wait_until_next(q posthaste.queue)
RETURNS bigint LANGUAGE sql AS $f$
  SELECT greatest(1, ceil((f.o_full - f.o_now - f.o_step * (q.burst - 1)) / 1000))::bigint
    FROM posthaste.full_at(q) f
$f$;

-- Takes jobs out of the bucket.
CREATE OR REPLACE FUNCTION posthaste.consume_rate(q posthaste.queue, p_jobs bigint)
RETURNS void LANGUAGE sql AS $f$
  SELECT setval(q.pace, ceil(f.o_full + f.o_step * p_jobs)::bigint) FROM posthaste.full_at(q) f
$f$;

-- Limits the jobs of the queue that all workers together claim per period, from the commit on.
-- After a pause, and at the beginning, up to burst jobs are claimed at once (by default as many as
-- rate). NULL removes the limit. A queue keeps its cell; otherwise it gets the free cell that was
-- used longest ago, because a running claim may still use it for another queue. A value that was
-- written to posthaste.queue by hand is kept only if it is a cell.
CREATE OR REPLACE FUNCTION posthaste.limit_rate(
  queue text, rate integer, per interval DEFAULT '1 second', burst integer DEFAULT NULL)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_cell regclass;
BEGIN
  IF rate < 1 OR burst < 1 OR per <= interval '0' OR per > interval '1 year' OR per IS NULL THEN
    RAISE EXCEPTION 'posthaste: rate and burst must be at least 1, '
      'per more than 0 and at most a year'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM pg_advisory_xact_lock(1885893479, 0);
  IF rate IS NOT NULL THEN
    v_cell := (
      SELECT c.oid FROM pg_class c LEFT JOIN posthaste.queue q ON q.pace = c.oid AND q.name = queue
       WHERE c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'S'
         AND c.relname ~ '^pace_[0-9]+$'
         AND NOT EXISTS (SELECT FROM posthaste.queue o WHERE o.pace = c.oid AND o.name <> queue)
       ORDER BY q.name IS NULL, pg_sequence_last_value(c.oid) NULLS FIRST, c.oid LIMIT 1);
    IF v_cell IS NULL THEN
      RAISE EXCEPTION 'posthaste: 64 queues already have a rate limit'
        USING ERRCODE = 'program_limit_exceeded',
              HINT = 'Remove one: SELECT posthaste.limit_rate(its queue, NULL).';
    END IF;
    PERFORM setval(v_cell, 0);
  END IF;
  INSERT INTO posthaste.queue AS q (name, rate, per, burst, pace)
  VALUES (queue, rate, CASE WHEN rate IS NOT NULL THEN per END, coalesce(burst, rate), v_cell)
  ON CONFLICT (name) DO UPDATE
     SET rate = excluded.rate, per = excluded.per, burst = excluded.burst, pace = excluded.pace;
  PERFORM posthaste.notify(queue, posthaste.listeners());
END $f$;
