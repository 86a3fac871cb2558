-- Identity: which store a session sees. Everything called here is allowed to the schema's owner on
-- a managed server, or optional.

-- The server's cluster id. If pg_control_system() is not allowed: the transaction that created the
-- store by the catalog, which a dump does not contain. It runs with its owner's rights, so that all
-- roles see the same.
CREATE OR REPLACE FUNCTION posthaste.cluster() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF has_function_privilege('pg_control_system()', 'EXECUTE') THEN
    BEGIN
      RETURN (pg_control_system()).system_identifier;
    EXCEPTION WHEN OTHERS THEN  -- a managed server may reject it inside
    END;
  END IF;
  RETURN (SELECT concat('made by ', a.xmin) FROM pg_attribute a
           WHERE a.attrelid = 'posthaste.store'::regclass AND a.attname = 'ctid');
END $f$;

-- The timeline of the write-ahead log. Until its first checkpoint a promoted server has the new
-- number only as the end of recovery. If both are not allowed, or the number never changes (Neon),
-- each life of the server counts as a new timeline.
CREATE OR REPLACE FUNCTION posthaste.timeline()
RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF has_function_privilege('pg_control_checkpoint()', 'EXECUTE')
     AND has_function_privilege('pg_control_recovery()', 'EXECUTE')
     AND current_setting('neon.timeline_id', true) IS NULL THEN
    BEGIN
      RETURN upper(lpad(to_hex(greatest((pg_control_checkpoint()).timeline_id,
        (pg_control_recovery()).min_recovery_end_timeline)), 8, '0'));
    EXCEPTION WHEN OTHERS THEN
    END;
  END IF;
  RETURN concat('life ', pg_sequence_last_value('posthaste.life'::regclass));
END $f$;

REVOKE EXECUTE ON FUNCTION posthaste.cluster(), posthaste.timeline() FROM PUBLIC;

-- The identity of the store that a session sees: the cluster, the tables, the timeline, the
-- database's oid, which a copy does not share and a rename does not change, and the life of the
-- server. Each claim reads it: that is how a worker notices that its connection leads elsewhere, or
-- to a server that was promoted or has crashed. A session stays in one database of one server, and
-- every change there begins another life, so it is computed once in each.
CREATE OR REPLACE FUNCTION posthaste.session_identity() RETURNS text LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_life text := pg_catalog.concat('/'::text, pg_sequence_last_value('posthaste.life'::regclass));
  v_known text := current_setting('posthaste.identity'::text, true);
BEGIN
  IF v_known LIKE '%' || v_life AND v_life <> '/'::text THEN
    RETURN v_known;
  END IF;
  v_known := posthaste.read_identity() || v_life;
  IF v_life <> '/'::text THEN
    PERFORM set_config('posthaste.identity'::text, v_known, false);
  END IF;
  RETURN v_known;
END $f$;

CREATE OR REPLACE FUNCTION posthaste.read_identity() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT concat_ws('/', posthaste.cluster(), 'posthaste.store'::regclass::oid, posthaste.timeline(),
    (SELECT oid FROM pg_database WHERE datname = current_database()))
$f$;

-- Whether a worker's identity is that of this store, in any life of its server.
CREATE OR REPLACE FUNCTION posthaste.is_this_store(p_identity text)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT regexp_replace(p_identity, '/[^/]*$', '')
       = regexp_replace(posthaste.session_identity(), '/[^/]*$', '')
$f$;

-- The identity of this store, without the life of its server.
CREATE OR REPLACE FUNCTION posthaste.current_identity() RETURNS text[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT (string_to_array(posthaste.session_identity(), '/'))[1:4]
$f$;
