-- Rates: how many jobs of a queue may be claimed in such a time.

-- A rate: a bucket of q.burst jobs that is filled by one every q.per / q.rate. Its cell holds, in
-- microseconds since 1970, when it will be full again. A sequence, so that nothing is updated and a
-- pinned horizon does not matter; what is used up is so although the claim is rolled back.
CREATE OR REPLACE FUNCTION posthaste.full_at(
  q posthaste.queue, OUT o_full numeric, OUT o_now numeric, OUT o_step numeric)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  o_now := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  o_step := extract(epoch FROM q.per) * 1000000 / q.rate;
  o_full := least(greatest(pg_sequence_last_value(q.pace), o_now), o_now + o_step * q.burst);
END $f$;

-- How many jobs of the queue may be claimed now. Its claimers go one by one from here on. A bucket
-- that is emptier than empty was written by a clock that was ahead: it is empty from now on. The
-- cell must be written for that, because full_at() moves its limit on with the clock.
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

-- After how many milliseconds the next one may be.
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

-- From the commit of this on, workers claim at most this many jobs of the queue in such a time, all
-- workers together; after a lull up to burst at once (as many as rate, unless said), and so from
-- now on. NULL takes the limit away. A queue keeps its cell, else it gets the free one that was
-- used longest ago: a claim may be under way that saw whose it was. What somebody wrote into
-- posthaste.queue by hand is moved only if it is a cell.
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
