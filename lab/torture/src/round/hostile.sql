-- What a database may bring along: settings of its owner, and functions of a role that may create
-- in `public`, which fit a call better than those of the server that it means.
ALTER DATABASE torture SET search_path = public;
ALTER DATABASE torture SET jit = on;
ALTER DATABASE torture SET jit_above_cost = 0;
ALTER DATABASE torture SET default_transaction_isolation = 'serializable';
ALTER DATABASE torture SET default_transaction_deferrable = on;
ALTER DATABASE torture SET datestyle = 'SQL, DMY';
ALTER DATABASE torture SET intervalstyle = 'sql_standard';
ALTER DATABASE torture SET timezone = 'Pacific/Kiritimati';
ALTER DATABASE torture SET bytea_output = 'escape';
ALTER DATABASE torture SET extra_float_digits = -15;
ALTER DATABASE torture SET standard_conforming_strings = off;
ALTER DATABASE torture SET escape_string_warning = off;
ALTER DATABASE torture SET plan_cache_mode = 'force_generic_plan';
ALTER DATABASE torture SET row_security = off;
ALTER DATABASE torture SET check_function_bodies = off;
GRANT CREATE ON SCHEMA public TO PUBLIC;
DO $hostile$
DECLARE v_signature text;
BEGIN
  FOREACH v_signature IN ARRAY ARRAY[
    'concat_ws(text, bigint, oid, text, name)', 'concat_ws(text, bigint, integer)',
    'to_timestamp(numeric)', 'to_timestamp(integer)', 'to_timestamp(bigint)',
    'hashtext(name)', 'hashtext(varchar)',
    'hashtextextended(varchar, bigint)', 'length(varchar)', 'octet_length(varchar)',
    'left(varchar, integer)', 'right(varchar, integer)', 'starts_with(varchar, text)',
    'setval(regclass, integer)', 'setval(regclass, integer, boolean)',
    'pg_advisory_xact_lock(integer, bigint)', 'pg_try_advisory_xact_lock(integer, smallint)',
    'pg_notify(varchar, varchar)', 'pg_notify(text, name)', 'format(varchar, text)',
    'mod(bigint, integer)', 'power(bigint, integer)', 'random(integer)', 'abs(smallint)',
    'round(bigint, integer)', 'ceil(bigint)', 'floor(bigint)', 'length(name)', 'md5(name)'
  ] LOOP
    EXECUTE 'CREATE FUNCTION public.' || v_signature || ' RETURNS bigint LANGUAGE plpgsql AS '
      || quote_literal('BEGIN RAISE EXCEPTION ''a function of public was called''; END');
  END LOOP;
END $hostile$;
