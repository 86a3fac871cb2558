-- Validation of a job: SQL functions of one expression, which the planner inlines into the rule of
-- posthaste.job, so that a prepared INSERT makes no function call. They run under the caller's
-- search_path, so each call and operator is exact or qualified (sql/README.md). Every statement
-- initialises each step of the expression, so it is kept short. (A CHECK constraint would parse the
-- expression in every statement, which cost a single INSERT more than the insert itself.)

-- Length of the arguments as text. A number such as 1e131071 takes a few bytes as jsonb and 128 KiB
-- as text. Documents that may contain many of them are searched for such numbers before they are
-- printed, so that rejecting them does not take a gigabyte of memory.
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

-- Whether this is a trace context: a traceparent of version 00 (W3C Trace Context), and after a
-- space the optional tracestate. The planner does not inline it: most jobs have none, and each
-- statement would pay for its steps. Regular expressions with counts and translate() take five
-- times as long.
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

-- Nesting is tested only above a size: 65 levels need more than 512 bytes of jsonb. Values from a
-- table may be compressed, and then their size is meaningless.
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

-- Raises 22023 naming the invalid field. Called only for invalid jobs; never returns.
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
    THEN 'scheduled_at: must be in the years 1 to 9998'
  WHEN expires_at >= '9999-01-01 00:00Z' AND expires_at = scheduled_at + interval '30 days' THEN
    'scheduled_at: must be 30 days before the year 9999, unless expires_at is given'
  WHEN expires_at < '0001-01-01 00:00Z' OR expires_at >= '9999-01-01 00:00Z'
    THEN 'expires_at: must be in the years 1 to 9998'
  WHEN enqueued_at < '0001-01-01 00:00Z' OR enqueued_at >= '9999-01-01 00:00Z'
    THEN 'enqueued_at: must be in the years 1 to 9998'
  WHEN NOT posthaste.is_trace(trace) THEN
    'trace: must be a traceparent of version 00, with a space and a tracestate or without, '
    'of at most 600 bytes'
  ELSE 'kwargs: must not be nested deeper than 64 levels'
END;
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'posthaste: ' || problem;
END $f$;

-- Columns that the view shows but does not accept: a unique key needs a lookup before the row is
-- written, which a rule cannot do; the others are set by the store.
CREATE OR REPLACE FUNCTION posthaste.refuse_field(field text)
RETURNS smallint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
    MESSAGE = 'posthaste: ' || field || ': the view posthaste.job does not accept it'
              || CASE WHEN field = 'unique_key' THEN '; call posthaste.enqueue()' ELSE '' END;
END $f$;
