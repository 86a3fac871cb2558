-- Functions and operators that an attacker may create in public: they match better than those of
-- pg_catalog wherever these do not match exactly. Each counts its calls, which no rollback reverts,
-- and fails.
CREATE SEQUENCE public.trapped;
GRANT ALL ON SEQUENCE public.trapped TO PUBLIC;
-- The statements below must not call them.
SET search_path = pg_catalog;
DO $do$
DECLARE
  v_body text := $b$BEGIN
    PERFORM pg_catalog.nextval('public.trapped'::pg_catalog.regclass);
    RAISE EXCEPTION 'trapped';
  END$b$;
  v_call text;
  v_types text[] := ARRAY['smallint', 'integer', 'bigint', 'numeric', 'float8', 'text', 'varchar',
                          'name', 'oid', 'regclass', 'regnamespace', 'interval', 'timestamptz',
                          'jsonb', 'uuid', 'text[]', 'bigint[]'];
  v_judges text[] := ARRAY['=', '<>', '<', '>', '<=', '>=', '~'];
  v_makes text[] := ARRAY['+', '-', '*', '/', '%', '&', '|', '||', '->', '->>'];
  v_name text;
BEGIN
  FOREACH v_call IN ARRAY ARRAY[
    'concat_ws(text, bigint, oid, text, name)', 'concat_ws(text, text, text)',
    'concat_ws(text, bigint, text)',
    'to_timestamp(numeric)', 'nextval(text)', 'setval(text, bigint)',
    'jsonb_path_exists(jsonb, text)',
    'pg_column_size(jsonb)', 'pg_column_compression(jsonb)', 'unnest(text[])', 'unnest(bigint[])',
    'unnest(integer[])', 'cardinality(text[])', 'cardinality(bigint[])', 'cardinality(integer[])',
    'array_agg(text)', 'array_agg(bigint)', 'array_agg(name)', 'count(bigint)', 'count(text)',
    'format(text, text)', 'format(text, bigint)', 'format(text, name)', 'format(text, integer)',
    'format(text, text, text)', 'format(text, name, text)', 'format(text, integer, name, text)',
    'format(text, text, name)', 'concat(bigint, text, bigint)', 'jsonb_build_object(text, text)',
    'jsonb_build_object(text, uuid)', 'jsonb_build_object(text, jsonb)',
    'jsonb_build_object(text, bigint)',
    'convert_from(bytea, text)', 'to_regclass(name)', 'array_to_string(text[], text)',
    'has_table_privilege(regclass, text)', 'pg_has_role(text, text)', 'make_interval(numeric)',
    'to_jsonb(text)', 'array_length(text[], integer)', 'greatest_of(text)', 'ceil(bigint)',
    'floor(bigint)']
  LOOP
    EXECUTE format('CREATE FUNCTION public.%s RETURNS text LANGUAGE plpgsql AS %L', v_call, v_body);
  END LOOP;
  FOR a IN 1 .. cardinality(v_types) LOOP
    FOR b IN 1 .. cardinality(v_types) LOOP
      EXECUTE format('CREATE FUNCTION public.judge_%s_%s(%s, %s) RETURNS boolean '
                     'LANGUAGE plpgsql AS %L',
                     a, b, v_types[a], v_types[b], v_body);
      EXECUTE format('CREATE FUNCTION public.make_%s_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L',
                     a, b, v_types[a], v_types[b], v_types[a], v_body);
      FOREACH v_name IN ARRAY v_judges LOOP
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, '
                       'FUNCTION = public.judge_%s_%s)',
                       v_name, v_types[a], v_types[b], a, b);
      END LOOP;
      FOREACH v_name IN ARRAY v_makes LOOP
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, '
                       'FUNCTION = public.make_%s_%s)',
                       v_name, v_types[a], v_types[b], a, b);
      END LOOP;
    END LOOP;
  END LOOP;
END $do$;
RESET search_path;
