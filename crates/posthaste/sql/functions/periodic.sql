-- Periodic jobs: one row each. The leader enqueues their ticks and advances next_at in the same
-- transaction, so only one leader can enqueue a tick.

-- Enqueues these ticks and sets the next one, unless that was done before or the schedule has
-- changed; returns the number of jobs. The ticks follow one another up to the next, the first after
-- p_now. A row that is being changed is left for later.
CREATE OR REPLACE FUNCTION posthaste.tick(
  p_name text, p_schedule text, p_zone text, p_at timestamptz, p_ticks timestamptz[],
  p_next timestamptz, p_now timestamptz DEFAULT clock_timestamp())
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  p posthaste.periodic;
  v_tick timestamptz;
  v_new tstzmultirange := tstzmultirange(tstzrange(p_ticks[1], p_next));
  v_jobs bigint := 0;
BEGIN
  SELECT * INTO p FROM posthaste.periodic
   WHERE name = p_name AND schedule = p_schedule AND time_zone = p_zone
     -- mutant: a tick is enqueued twice: AND true FOR UPDATE SKIP LOCKED;
     -- mutant: a tick ignores a concurrent leader: AND next_at IS NOT DISTINCT FROM p_at;
     AND next_at IS NOT DISTINCT FROM p_at FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  -- Each gap was left by a clock jump or a time without a leader; the newest are recorded.
  UPDATE posthaste.periodic SET next_at = p_next, looked_at = p_now, error = NULL,
         made = CASE WHEN cardinality(p_ticks) = 0 THEN p.made
                     ELSE (SELECT range_agg(m.part) FROM (
                             SELECT u.part FROM unnest(p.made + v_new) u(part)
                              ORDER BY u.part DESC LIMIT 16) m) END
   WHERE name = p_name;
  FOREACH v_tick IN ARRAY p_ticks LOOP
    -- bug: a tick that was enqueued is enqueued again: IF true THEN
    IF NOT p.made @> v_tick THEN
      PERFORM posthaste.enqueue(p.job, p.kwargs, p.queue, p.priority, v_tick,
                                greatest(v_tick, clock_timestamp()) + interval '30 days', p.tag,
                                NULL, p.max_attempts);
      v_jobs := v_jobs + 1;
    END IF;
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Marks periodic jobs that could not be enqueued. They are tried again after ten minutes, or once
-- the row is changed.
CREATE OR REPLACE FUNCTION posthaste.fail_ticks(
  p_names text[], p_schedules text[], p_zones text[], p_errors text[])
RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  UPDATE posthaste.periodic p SET error = left(f.error, 500), looked_at = clock_timestamp()
    FROM unnest(p_names, p_schedules, p_zones, p_errors) f(name, schedule, time_zone, error)
   WHERE p.name = f.name AND p.schedule = f.schedule AND p.time_zone = f.time_zone
$f$;
