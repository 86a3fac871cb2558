-- What a job may be. SQL functions of one expression, which the planner inlines into the rule of
-- posthaste.job: a prepared INSERT pays no call for them. They run under the path of who enqueues,
-- so each call and operator is exact or qualified (sql/README.md). Every step of such an expression
-- is set up anew by every statement, so it says as much as it can with few. (As a CHECK constraint
-- the same expression is parsed anew by every statement, which cost a single INSERT more than the
-- insert itself.)

-- Length of the arguments as text. A number such as 1e131071 takes a few bytes as jsonb and 128 KiB
-- as text, so a document that could hide many of them is searched for such numbers before it is
-- printed: nobody pays a gigabyte to learn that it is refused.
CREATE OR REPLACE FUNCTION posthaste.text_bytes(kwargs jsonb)
RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE AS $f$
  SELECT CASE
    WHEN (pg_catalog.pg_column_size(kwargs) > 8192
          OR pg_catalog.pg_column_compression(kwargs) IS NOT NULL)
         AND pg_catalog.jsonb_path_exists(kwargs,
         'strict $.** ? (@.type() == "number" && (@ > 1e400 || @ < -1e400
            || (@ != 0 && @ < 1e-400 && @ > -1e-400)))')
           THEN 2147483647
    ELSE octet_length(kwargs::text) END
$f$;

-- Whether this is trace context: a traceparent of version 00 as W3C Trace Context has it, and after
-- a space the tracestate if there is one. The planner does not inline it: most jobs have none, and
-- each statement would pay for its steps. No regular expression that counts, and no translate():
-- they take five times as long.
CREATE OR REPLACE FUNCTION posthaste.is_trace(trace text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $f$
DECLARE
  digits text := replace(left(trace, 55), '-'::text, ''::text);
BEGIN
  RETURN octet_length(trace) <= 600
    AND trace COLLATE pg_catalog."C" LIKE '00-________________________________-________________-__%'
    AND octet_length(digits) = 52 AND digits COLLATE pg_catalog."C" ~ '^[0-9a-f]+$'
    AND (octet_length(trace) = 55
         OR substr(trace, 56) COLLATE pg_catalog."C" ~ '^ [!-~]([ -~]*[!-~])?$');
END $f$;

-- The depth test hides behind a size: 65 levels of nesting need more than 512 bytes of jsonb. What
-- comes from a table may be compressed, and its size says nothing then.
CREATE OR REPLACE FUNCTION posthaste.is_valid(
  name text, queue text, tag text, unique_key text, ordering_key text, kwargs jsonb,
  kwargs_bytes integer, attempt integer, max_attempts integer, scheduled_at timestamptz,
  expires_at timestamptz, enqueued_at timestamptz, trace text)
RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $f$
  SELECT name <> '' AND queue <> '' AND tag IS NOT NULL
    AND greatest(octet_length(name), octet_length(queue), octet_length(tag)) <= 255
    AND (unique_key IS NULL OR octet_length(unique_key) BETWEEN 1 AND 1024)
    AND (ordering_key IS NULL OR octet_length(ordering_key) BETWEEN 1 AND 1024)
    AND jsonb_typeof(kwargs) = 'object'
    AND kwargs_bytes <= 1048576
    AND (pg_catalog.pg_column_size(kwargs) < 512
         AND pg_catalog.pg_column_compression(kwargs) IS NULL
         OR NOT pg_catalog.jsonb_path_exists(kwargs,
           'strict $.**{64} ? (@.type() == "object" || @.type() == "array")'))
    AND attempt >= 0
    AND (max_attempts < 1) IS NOT TRUE
    AND least(scheduled_at, expires_at, enqueued_at) >= '0001-01-01 00:00Z'
    AND greatest(scheduled_at, expires_at, enqueued_at) < '9999-01-01 00:00Z'
    AND posthaste.is_trace(trace) IS NOT FALSE
$f$;

-- Says which argument is wrong: 22023 with the field's name. Called only for a job that is not
-- valid; returns nothing ever.
CREATE OR REPLACE FUNCTION posthaste.refuse(
  name text, queue text, tag text, unique_key text, ordering_key text, kwargs jsonb,
  kwargs_bytes integer, attempt integer, max_attempts integer, scheduled_at timestamptz,
  expires_at timestamptz, enqueued_at timestamptz, trace text)
RETURNS smallint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE problem text := CASE
  WHEN octet_length(name) NOT BETWEEN 1 AND 255 THEN 'name: must have 1 to 255 bytes'
  WHEN octet_length(queue) NOT BETWEEN 1 AND 255 THEN 'queue: must have 1 to 255 bytes'
  WHEN octet_length(tag) > 255 THEN 'tag: must have at most 255 bytes'
  WHEN octet_length(unique_key) NOT BETWEEN 1 AND 1024 THEN 'unique_key: must have 1 to 1024 bytes'
  WHEN octet_length(ordering_key) NOT BETWEEN 1 AND 1024
    THEN 'ordering_key: must have 1 to 1024 bytes'
  WHEN jsonb_typeof(kwargs) <> 'object' THEN 'kwargs: must be a JSON object, not '
    || jsonb_typeof(kwargs)
  WHEN kwargs_bytes > 1048576 THEN 'kwargs: must be at most 1 MiB as text'
  WHEN attempt < 0 THEN 'attempt: must not be negative'
  WHEN max_attempts < 1 THEN 'max_attempts: must be at least 1, or NULL for no limit'
  WHEN scheduled_at < '0001-01-01 00:00Z' OR scheduled_at >= '9999-01-01 00:00Z'
    THEN 'scheduled_at: must lie in the years 1 to 9998'
  WHEN expires_at >= '9999-01-01 00:00Z' AND expires_at = scheduled_at + interval '30 days' THEN
    'scheduled_at: must lie 30 days before the year 9999, unless expires_at is given'
  WHEN expires_at < '0001-01-01 00:00Z' OR expires_at >= '9999-01-01 00:00Z'
    THEN 'expires_at: must lie in the years 1 to 9998'
  WHEN enqueued_at < '0001-01-01 00:00Z' OR enqueued_at >= '9999-01-01 00:00Z'
    THEN 'enqueued_at: must lie in the years 1 to 9998'
  WHEN NOT posthaste.is_trace(trace) THEN
    'trace: must be a traceparent of version 00, with a space and a tracestate or without, '
    'of at most 600 bytes'
  ELSE 'kwargs: must not be nested deeper than 64 levels'
END;
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'posthaste: ' || problem;
END $f$;

-- What the view shows and does not take: a unique key needs a look before the row is written, which
-- a rule cannot take; the rest is the store's.
CREATE OR REPLACE FUNCTION posthaste.refuse_field(field text)
RETURNS smallint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
    MESSAGE = 'posthaste: ' || field || ': the view posthaste.job does not accept it'
              || CASE WHEN field = 'unique_key' THEN '; call posthaste.enqueue()' ELSE '' END;
END $f$;
