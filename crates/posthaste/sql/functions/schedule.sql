-- Validation of schedules: the same decisions and messages as src/periodic/schedule.rs, which a
-- test compares (tests/periodic/refused.rs).

-- The numbers that one field of a schedule selects, or the reason why it is invalid. The first of
-- p_names is the number p_least.
CREATE OR REPLACE FUNCTION posthaste.schedule_field(
  p_what text, p_text text, p_least integer, p_most integer, p_names text[],
  OUT o_numbers integer[], OUT o_refusal text)
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_part text;
  v_range text;
  v_step text;
  v_ends text[];
  v_numbers integer[];
  v_by integer;
BEGIN
  o_numbers := '{}';
  FOREACH v_part IN ARRAY regexp_split_to_array(p_text, ',') LOOP
    v_range := split_part(v_part, '/', 1);
    v_step := CASE WHEN strpos(v_part, '/') > 0 THEN substr(v_part, strpos(v_part, '/') + 1) END;
    v_ends := CASE WHEN v_range IN ('*', '?') THEN ARRAY[p_least, p_most]::text[]
                   WHEN strpos(v_range, '-') > 0 THEN ARRAY[split_part(v_range, '-', 1),
                     substr(v_range, strpos(v_range, '-') + 1)]
                   WHEN v_step IS NULL THEN ARRAY[v_range, v_range]
                   -- 5/15 begins at 5 and continues to the end.
                   ELSE ARRAY[v_range, p_most::text] END;
    v_numbers := ARRAY(
      SELECT coalesce(p_least - 1 + array_position(p_names, upper(e.text COLLATE "C")),
                      CASE WHEN e.text COLLATE "C" ~ '^[0-9]{1,9}$' THEN e.text::integer END)
        FROM unnest(v_ends) WITH ORDINALITY e(text, place) ORDER BY e.place);
    v_by := CASE WHEN v_step IS NULL THEN 1
                 WHEN v_step COLLATE "C" ~ '^[0-9]{1,9}$' THEN v_step::integer END;
    IF v_numbers[1] >= p_least AND v_numbers[1] <= v_numbers[2] AND v_numbers[2] <= p_most
      AND v_by > 0 THEN
      o_numbers := o_numbers || ARRAY(SELECT generate_series(v_numbers[1], v_numbers[2], v_by));
    ELSE
      o_refusal := format('%s: "%s" is not a number, range or step from %s to %s', p_what, v_part,
        p_least, p_most);
      RETURN;
    END IF;
  END LOOP;
END $f$;

-- Whether this server knows a time zone. Names of letters with a slash are checked by using them,
-- all others in the view: Postgres accepts 'Foo+3' and 'EST' as zones that no file describes.
CREATE OR REPLACE FUNCTION posthaste.is_time_zone(p_name text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF p_name COLLATE "C" ~ '^[A-Za-z_]+(/[A-Za-z_]+)+$' OR p_name = 'UTC' THEN
    PERFORM clock_timestamp() AT TIME ZONE p_name;
    RETURN true;
  END IF;
  RETURN EXISTS (SELECT FROM pg_timezone_names z
    WHERE lower(z.name COLLATE "C") = lower(p_name COLLATE "C"));
EXCEPTION WHEN invalid_parameter_value THEN
  RETURN false;
END $f$;

-- Why a schedule is invalid; NULL if it is valid.
CREATE OR REPLACE FUNCTION posthaste.schedule_refusal(p_schedule text, p_zone text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_text text := btrim(p_schedule, E' \t\n\f\r');
  v_fields text[];
  v_refusal text;
  v_days integer[];
  v_months integer[];
BEGIN
  IF p_schedule IS NULL OR p_zone IS NULL THEN
    RETURN NULL;
  END IF;
  v_text := CASE v_text WHEN '@hourly' THEN '0 * * * *'
                        WHEN '@daily' THEN '0 0 * * *' WHEN '@midnight' THEN '0 0 * * *'
                        WHEN '@weekly' THEN '0 0 * * 0' WHEN '@monthly' THEN '0 0 1 * *'
                        WHEN '@yearly' THEN '0 0 1 1 *' WHEN '@annually' THEN '0 0 1 1 *'
                        ELSE v_text END;
  v_fields := CASE WHEN v_text = '' THEN '{}'
    ELSE regexp_split_to_array(v_text, E'[ \t\n\f\r]+') END;
  IF cardinality(v_fields) <> 5 THEN
    RETURN format('a schedule has five fields, not %s', cardinality(v_fields));
  END IF;
  IF NOT posthaste.is_time_zone(p_zone) THEN
    RETURN format('no time zone is named "%s"', p_zone);
  END IF;
  SELECT o_refusal INTO v_refusal FROM posthaste.schedule_field('day of the week', v_fields[5], 0,
    7, '{SUN,MON,TUE,WED,THU,FRI,SAT}');
  IF v_refusal IS NULL THEN
    SELECT o_refusal INTO v_refusal
      FROM posthaste.schedule_field('minute', v_fields[1], 0, 59, '{}');
  END IF;
  IF v_refusal IS NULL THEN
    SELECT o_refusal INTO v_refusal
      FROM posthaste.schedule_field('hour', v_fields[2], 0, 23, '{}');
  END IF;
  IF v_refusal IS NULL THEN
    SELECT o_numbers, o_refusal INTO v_days, v_refusal
      FROM posthaste.schedule_field('day of the month', v_fields[3], 1, 31, '{}');
  END IF;
  IF v_refusal IS NULL THEN
    SELECT o_numbers, o_refusal INTO v_months, v_refusal
      FROM posthaste.schedule_field('month', v_fields[4], 1, 12,
        '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}');
  END IF;
  -- If the day of the month or of the week begins with * or ?, a day must match both, else either
  -- is enough. Each date falls on each day of the week within forty years.
  IF v_refusal IS NULL AND left(v_fields[3], 1) NOT IN ('*', '?')
    AND left(v_fields[5], 1) IN ('*', '?')
    AND NOT EXISTS (SELECT FROM unnest(v_months) m, unnest(v_days) d
      WHERE d <= ('{31,29,31,30,31,30,31,31,30,31,30,31}'::integer[])[m]) THEN
    RETURN 'no such date exists';
  END IF;
  RETURN v_refusal;
END $f$;

-- Checks each written row of posthaste.periodic: rejects schedules that no leader could read and
-- jobs that none could enqueue, and clears the error of a changed row.
CREATE OR REPLACE FUNCTION posthaste.check_periodic() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_refusal text := posthaste.schedule_refusal(NEW.schedule, NEW.time_zone);
BEGIN
  IF v_refusal IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
      MESSAGE = 'posthaste: schedule: ' || v_refusal;
  END IF;
  IF NOT posthaste.is_valid(NEW.job, coalesce(NEW.queue, 'default'), NEW.tag, NULL, NULL,
    NEW.kwargs, posthaste.text_bytes(NEW.kwargs), 0, NEW.max_attempts, now(), now(), now(), NULL)
    THEN
    PERFORM posthaste.refuse(NEW.job, coalesce(NEW.queue, 'default'), NEW.tag, NULL, NULL,
      NEW.kwargs, posthaste.text_bytes(NEW.kwargs), 0, NEW.max_attempts, now(), now(), now(), NULL);
  END IF;
  NEW.error := NULL;
  RETURN NEW;
END $f$;
