-- Index sync: jobs for a table's rows, and the rows as the sync reads them.

-- Enqueues one job by hand, in the transaction of the change; delay defaults to the table's.
-- deleted: the version of a deletion, which must be larger than the row's was, and smaller than
-- that of a later row with the same key. force: the document is written even if its version is
-- unchanged.
CREATE OR REPLACE FUNCTION posthaste.sync(
  name text, id text, delay interval DEFAULT NULL, deleted bigint DEFAULT NULL,
  force boolean DEFAULT false, tag text DEFAULT '', priority integer DEFAULT 0)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
BEGIN
  delay := coalesce(delay, (SELECT s.delay FROM posthaste.synced s WHERE s.name = name),
      interval '60 s');
  RETURN posthaste.enqueue('sync.' || name,
                           jsonb_strip_nulls(jsonb_build_object('id', id, 'deleted', deleted,
          'force', nullif(force, false))), 'sync.' || name,
                           priority, clock_timestamp() + delay, NULL, tag, NULL, NULL);
END $f$;

-- Here and below, row security that would hide rows raises an error: hidden rows are not deleted
-- ones.

-- Enqueues a job for each row, at lower priority than changes, for an empty index; returns the
-- number. Rows with an unfinished job of this kind get no second one; rows with other jobs do,
-- because a deleted index has lost its contents, even if one of its rows has long been retried.
CREATE OR REPLACE FUNCTION posthaste.sync_fill(name text) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET row_security = off AS $f$
#variable_conflict use_variable
DECLARE
  s posthaste.synced;
  v_jobs bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.name = name) THEN
    RETURN 0;
  END IF;
  s := posthaste.synced_table(name);
  PERFORM pg_advisory_xact_lock(1885893480, hashtext(name));
  EXECUTE format($sql$INSERT INTO posthaste.job (name, queue, priority, tag, max_attempts, kwargs)
    WITH there AS MATERIALIZED (
      SELECT j.kwargs ->> 'id' AS id FROM posthaste.job j WHERE j.queue = $1 AND j.tag = 'fill'
        -- A running job may have read the index that is gone.
        AND j.state IN ('available', 'blocked', 'scheduled', 'retrying', 'quarantined'))
    SELECT $1, $1, 1000, 'fill', NULL, jsonb_build_object('id', t.%1$I::text) FROM %2$s t
      WHERE NOT EXISTS (SELECT FROM there WHERE there.id = t.%1$I::text COLLATE "C")$sql$,
    s.key, s.relation) USING 'sync.' || name;
  GET DIAGNOSTICS v_jobs = ROW_COUNT;
  RETURN v_jobs;
END $f$;

-- Raises the versions of a synced table above this one and assigns new ones to these rows: for an
-- index that is ahead of its table, because the table was restored or lost commits.
CREATE OR REPLACE FUNCTION posthaste.sync_raise(name text, beyond bigint, ids text[])
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  s posthaste.synced;
  v_rows bigint;
  v_sequence regclass;
BEGIN
  SELECT * INTO STRICT s FROM posthaste.synced o WHERE o.name = name AND o.draws;
  v_sequence := pg_catalog.format('posthaste.%I', 'sync_version_' || s.drawn_by);
  EXECUTE pg_catalog.format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', s.relation);
  PERFORM setval(v_sequence, greatest(posthaste.position(v_sequence), beyond));
  EXECUTE pg_catalog.format(
    'UPDATE %s t SET %I = 0
      WHERE t.%I::text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) ANY ($1)',
    s.relation, s.version, s.key) USING ids;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- The type of a synced table's key, without its length: a character(8) would otherwise become a
-- character(1), and a cast to it would truncate keys.
CREATE OR REPLACE FUNCTION posthaste.sync_key_type(s posthaste.synced)
RETURNS text LANGUAGE sql STABLE AS $f$
  SELECT format_type(a.atttypid, -1) FROM pg_attribute a
    WHERE a.attrelid = s.relation AND a.attname = s.key
$f$;

-- Those of these texts that can be keys of a synced table. Any other matches no row, and must not
-- fail the rest.
CREATE OR REPLACE FUNCTION posthaste.sync_keys(s posthaste.synced, p_ids text[])
RETURNS text[] LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_type text := posthaste.sync_key_type(s);
  v_id   text;
  v_keys text[] := '{}';
BEGIN
  BEGIN
    EXECUTE format('SELECT $1::%s[]', v_type) USING p_ids;
    RETURN p_ids;
  EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    NULL;
  END;
  FOREACH v_id IN ARRAY p_ids LOOP
    BEGIN
      EXECUTE format('SELECT $1::%s', v_type) USING v_id;
      v_keys := v_keys || v_id;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
      NULL;
    END;
  END LOOP;
  RETURN v_keys;
END $f$;

-- A synced table by name, if it exists.
CREATE OR REPLACE FUNCTION posthaste.synced_table(p_name text)
RETURNS posthaste.synced LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  SELECT * INTO s FROM posthaste.synced o WHERE o.name = p_name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'posthaste: no sync is named %', p_name USING ERRCODE = 'no_data_found';
  ELSIF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.relation) THEN
    RAISE EXCEPTION 'posthaste: the table of sync % was dropped', p_name
      USING ERRCODE = 'undefined_table';
  END IF;
  RETURN s;
END $f$;

-- The condition for rows whose keys have these texts, $1: the index operator finds them, and their
-- bytes are compared, because the operator may treat other texts as equal (1.0 and 1.00, or a and A
-- under a collation that ignores case).
CREATE OR REPLACE FUNCTION posthaste.sync_with_keys(s posthaste.synced)
RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN format('t.%1$I %2$s ANY ($1::%3$s[]) AND t.%1$I::text COLLATE "C" = ANY ($1)',
                s.key, posthaste.sync_operator(s, 3::smallint), posthaste.sync_key_type(s));
END $f$;

-- All columns of a row as JSON, except the version columns of syncs.
CREATE OR REPLACE FUNCTION posthaste.sync_document(s posthaste.synced)
RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN format('to_jsonb(t.*) - %L::text[]', ARRAY(
    SELECT s.version::text
    UNION SELECT o.version::text FROM posthaste.synced o
           WHERE o.relation = s.relation AND o.draws));
END $f$;

-- Rows of a synced table by key; document is NULL for a missing or hidden row. Documents do not
-- depend on the session: all settings that affect formatting are set here.
CREATE OR REPLACE FUNCTION posthaste.sync_rows(p_name text, p_ids text[])
RETURNS TABLE (id text, version bigint, document jsonb) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET row_security = off
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' SET xmlbinary = 'base64'
SET quote_all_identifiers = off AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  s := posthaste.synced_table(p_name);
  RETURN QUERY EXECUTE format(
      'SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t WHERE %5$s', s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN posthaste.sync_document(s)
         ELSE format('CASE WHEN t.%I IS TRUE THEN NULL ELSE %s END', s.deleted,
                     posthaste.sync_document(s)) END,
    s.relation, posthaste.sync_with_keys(s))
    USING posthaste.sync_keys(s, p_ids);
END $f$;

-- As sync_rows, without documents.
CREATE OR REPLACE FUNCTION posthaste.sync_versions(p_name text, p_ids text[])
RETURNS TABLE (id text, version bigint, is_there boolean) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET row_security = off AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  s := posthaste.synced_table(p_name);
  RETURN QUERY EXECUTE format(
      'SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t WHERE %5$s', s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN 'true' ELSE format('t.%I IS NOT TRUE', s.deleted) END,
    s.relation, posthaste.sync_with_keys(s))
    USING posthaste.sync_keys(s, p_ids);
END $f$;

-- The next rows after a key, in the order of the key, as returned by sync_versions.
CREATE OR REPLACE FUNCTION posthaste.sync_page(p_name text, p_after text, p_most bigint)
RETURNS TABLE (id text, version bigint, is_there boolean) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET row_security = off AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  s := posthaste.synced_table(p_name);
  RETURN QUERY EXECUTE format(
    'SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t %5$s ORDER BY t.%1$I USING %6$s LIMIT $2',
      s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN 'true' ELSE format('t.%I IS NOT TRUE', s.deleted) END,
    s.relation,
    CASE WHEN p_after IS NULL THEN ''
         ELSE format('WHERE t.%I %s $1::%s', s.key, posthaste.sync_operator(s, 5::smallint),
                     posthaste.sync_key_type(s)) END,
    posthaste.sync_operator(s, 1::smallint)) USING p_after, p_most;
END $f$;
