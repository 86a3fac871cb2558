-- Index sync: which tables are synced, and what is created for them.

-- Rejects tables that cannot be synced, naming the reason. Versions and jobs need triggers that see
-- every change of every row.
CREATE OR REPLACE FUNCTION posthaste.check_synced(s posthaste.synced)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_column name;
BEGIN
  -- Statements on a parent would not fire the triggers of its inheritance children, nor those on a
  -- child its parent's.
  IF EXISTS (SELECT FROM pg_class c WHERE c.oid = s.relation
                AND (c.relkind NOT IN ('r', 'p')
                     OR (s.draws OR s.enqueues) AND c.relkind = 'r' AND NOT c.relispartition
                        AND (c.relhassubclass
                             OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)))) THEN
    RAISE EXCEPTION 'posthaste: %: only a table without inheritance can be synced by triggers',
      s.relation USING ERRCODE = 'wrong_object_type',
      HINT = 'With draw and enqueue false, the program sets the versions and enqueues the jobs.';
  END IF;
  FOREACH v_column IN ARRAY
    array_remove(ARRAY[s.key, CASE WHEN NOT s.draws THEN s.version END, s.deleted], NULL) LOOP
    IF NOT EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = s.relation AND a.attname = v_column AND a.attnum > 0) THEN
      RAISE EXCEPTION 'posthaste: %: there is no column "%" for its %', s.relation,
        v_column, CASE v_column WHEN s.key THEN 'key; name the key column'
                                WHEN s.deleted THEN 'mark of deleted rows' ELSE 'version' END
        USING ERRCODE = 'undefined_column';
    END IF;
  END LOOP;
  -- Its text is the document's id: writers and readers of a row must agree on it.
  IF EXISTS (
    WITH RECURSIVE base AS (
      SELECT t.oid, t.typtype, t.typbasetype, t.typoutput
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       WHERE a.attrelid = s.relation AND a.attname = s.key
      UNION ALL
      SELECT t.oid, t.typtype, t.typbasetype, t.typoutput
        FROM base b JOIN pg_type t ON b.typtype = 'd' AND t.oid = b.typbasetype)
    SELECT FROM base b JOIN pg_proc p ON p.oid = b.typoutput
     WHERE b.typtype NOT IN ('d', 'e')
       AND (p.provolatile <> 'i' OR b.oid = ANY ('{float4,float8,bytea,interval}'::regtype[]))) THEN
    RAISE EXCEPTION 'posthaste: %: the text of the key "%" depends on settings of the session',
      s.relation, s.key USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Use another unique column, of numbers, text or uuid, as the key.';
  END IF;
  -- With a deferred key, an insert does not wait for the transaction that deletes the same key.
  IF posthaste.sync_index(s) IS NULL THEN
    RAISE EXCEPTION 'posthaste: %: the key "%" must be NOT NULL with a single-column unique index',
      s.relation, s.key USING ERRCODE = 'invalid_parameter_value',
      DETAIL = 'The index must not be deferrable or partial. On a partitioned table '
               'the partition columns may follow the key.',
      HINT = 'If the key has several columns, add one column that is unique.';
  END IF;
  IF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = s.relation AND a.attname = s.deleted
                AND a.atttypid <> 'boolean'::regtype) THEN
    RAISE EXCEPTION 'posthaste: %: "%", which marks deleted rows, must be a boolean',
      s.relation, s.deleted USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF EXISTS (SELECT FROM posthaste.synced o
              WHERE o.relation = s.relation AND o.version = s.version AND o.name <> s.name
                AND o.draws <> s.draws) THEN
    RAISE EXCEPTION 'posthaste: %: another sync uses the version "%" with another value of draw',
      s.relation, s.version USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Use a separate version column for this sync.';
  END IF;
END $f$;

-- The sync whose sequences are used: one that draws for the same column already, or the sequences
-- it had, or new ones under a name that no other table uses.
CREATE OR REPLACE FUNCTION posthaste.sync_drawn_by(s posthaste.synced)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_name text := (SELECT o.drawn_by FROM posthaste.synced o
                   WHERE o.relation = s.relation
                     AND (o.name = s.name OR o.draws AND s.draws AND o.version = s.version)
                   ORDER BY o.name = s.name, o.name LIMIT 1);
BEGIN
  v_name := coalesce(v_name, s.name);
  FOR n IN 2 .. 1000 LOOP
    EXIT WHEN NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.drawn_by = v_name
                             AND o.relation <> s.relation AND o.name <> s.name);
    v_name := left(s.name, 36) || '_' || n;
  END LOOP;
  RETURN v_name;
END $f$;

-- An operator of the unique index of a table's key: 1 is less than, 3 equals, 5 is greater than.
CREATE OR REPLACE FUNCTION posthaste.sync_operator(s posthaste.synced, p_strategy smallint)
RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN (
    SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname)
      FROM pg_index i
      JOIN pg_opclass c ON c.oid = i.indclass[0]
      JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = p_strategy
                    AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
      JOIN pg_operator o ON o.oid = m.amopopr
      JOIN pg_namespace n ON n.oid = o.oprnamespace
     WHERE i.indexrelid = posthaste.sync_index(s));
END $f$;

-- Whether the version column was created for posthaste: its comment says so, or a sync already
-- draws for it. Its name proves nothing: programs have columns for optimistic locks.
CREATE OR REPLACE FUNCTION posthaste.sync_owns_version(s posthaste.synced)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT EXISTS (SELECT FROM posthaste.synced o
                  WHERE o.relation::oid = s.relation::oid AND o.version = s.version AND o.draws)
      OR EXISTS (
        SELECT FROM pg_attribute a
         WHERE a.attname = s.version
           AND (a.attrelid = s.relation::oid
                OR a.attrelid IN (SELECT p.relid::oid FROM pg_partition_ancestors(s.relation) p))
           AND col_description(a.attrelid, a.attnum::integer) LIKE 'posthaste:%')
$f$;

-- Adds the version column, or rejects one that programs may use.
CREATE OR REPLACE FUNCTION posthaste.sync_add_version(s posthaste.synced, p_table text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- A column cannot be added to a partition, even if it exists.
  IF NOT EXISTS (SELECT FROM pg_attribute a
                  WHERE a.attrelid = s.relation AND a.attname = s.version) THEN
    EXECUTE format('ALTER TABLE %s ADD COLUMN %I bigint NOT NULL DEFAULT 0', p_table, s.version);
    EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', p_table, s.version,
                   'posthaste: the version of the row, drawn by triggers');
  ELSIF NOT posthaste.sync_owns_version(s) THEN
    RAISE EXCEPTION 'posthaste: %: the column "%" exists and was not created by posthaste: its '
      'triggers would overwrite what programs write there', s.relation, s.version
      USING ERRCODE = 'duplicate_column',
      HINT = format('Set "version" to another column. If no program uses this one: COMMENT ON '
                    'COLUMN %s.%I IS %L', p_table, s.version, 'posthaste: versions of rows');
  END IF;
END $f$;

-- Syncs the rows of a table to an index: adds the version column if it is missing, and the
-- triggers. draw => false: the column is the program's own, and ascends for each key, also across
-- deletions. enqueue => false: the program calls posthaste.sync() itself, for deletions too.
-- always: the triggers also fire under session_replication_role = replica. documents: a digest of
-- the document definition. Calling it again with other arguments changes the sync. A table may have
-- several syncs with different names.
CREATE OR REPLACE FUNCTION posthaste.sync_table(
  relation regclass, key name DEFAULT 'id', version name DEFAULT 'posthaste_version',
  name text DEFAULT NULL, deleted name DEFAULT NULL, delay interval DEFAULT '60 s',
  draw boolean DEFAULT true, enqueue boolean DEFAULT true, always boolean DEFAULT false,
  documents text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_table text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
  v_before text;
  s posthaste.synced;
BEGIN
  name := coalesce(name, (SELECT c.relname FROM pg_class c WHERE c.oid = relation));
  s := (name, relation, key, version, deleted, delay, draw, enqueue, always,
        name, documents)::posthaste.synced;
  PERFORM posthaste.check_synced(s);
  EXECUTE format('LOCK TABLE %s', v_table);
  IF draw THEN
    PERFORM posthaste.sync_add_version(s, v_table);
  END IF;
  IF NOT EXISTS (SELECT FROM pg_attribute a
      WHERE a.attrelid = relation AND a.attname = version AND a.atttypid = 'bigint'::regtype
      AND a.attnotnull) THEN
    RAISE EXCEPTION 'posthaste: %: the version "%" must be a bigint and NOT NULL', relation, version
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  v_before := (SELECT o.drawn_by FROM posthaste.synced o WHERE o.name = name);
  s.drawn_by := posthaste.sync_drawn_by(s);
  DELETE FROM posthaste.audited a WHERE a.name = name
    AND NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.name = name AND o.relation = relation);
  INSERT INTO posthaste.synced AS o VALUES (s.*)
  ON CONFLICT ON CONSTRAINT synced_pkey DO UPDATE
    SET (relation, key, version, deleted, delay, draws, enqueues, always, drawn_by, documents) =
        (s.relation, s.key, s.version, s.deleted, s.delay, s.draws, s.enqueues, s.always,
         s.drawn_by, coalesce(s.documents, o.documents))
   WHERE o.relation = relation OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = o.relation);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'posthaste: % is the name of the sync of another table, %', name,
      (SELECT o.relation FROM posthaste.synced o WHERE o.name = name)
      USING ERRCODE = 'duplicate_object';
  END IF;
  PERFORM set_config('client_min_messages', 'warning', true);
  PERFORM posthaste.unsync_triggers(name);
  IF draw THEN
    PERFORM posthaste.sync_sequences(s, v_table, v_before);
  END IF;
  PERFORM posthaste.unsync_sequences(v_before);
  IF draw OR enqueue THEN
    EXECUTE posthaste.sync_sql(s, v_table);
    PERFORM posthaste.sync_truncates(s);
  END IF;
  RETURN name;
END $f$;

-- Advances the sequences of a sync beyond the versions in the table and those drawn before.
CREATE OR REPLACE FUNCTION posthaste.sync_sequences(s posthaste.synced, p_table text, p_before text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_version text := format('posthaste.%I', 'sync_version_' || s.drawn_by);
  v_deaths  text := format('posthaste.%I', 'sync_deaths_' || s.drawn_by);
  v_before  text := format('posthaste.%I', 'sync_version_' || coalesce(p_before, s.drawn_by));
  v_largest bigint;
BEGIN
  EXECUTE format('CREATE SEQUENCE IF NOT EXISTS %s MINVALUE 0 START 0', v_version);
  EXECUTE format('CREATE SEQUENCE IF NOT EXISTS %s MINVALUE 0 START 0', v_deaths);
  EXECUTE format('SELECT max(t.%I) FROM %s t', s.version, p_table) INTO v_largest;
  PERFORM setval(v_version::regclass,
                 greatest(pg_sequence_last_value(v_version::regclass),
                          pg_sequence_last_value(to_regclass(v_before)), v_largest, 0)),
          nextval(v_deaths::regclass);
  IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'posthaste_producer') THEN
    EXECUTE format('GRANT SELECT, USAGE ON SEQUENCE %s, %s TO posthaste_producer, posthaste_worker',
                   v_version, v_deaths);
    EXECUTE format('GRANT SELECT ON SEQUENCE %s, %s TO posthaste_observer', v_version, v_deaths);
  END IF;
END $f$;

-- Drops the triggers with their functions.
CREATE OR REPLACE FUNCTION posthaste.unsync_triggers(p_name text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_function regprocedure;
BEGIN
  FOR v_function IN SELECT p.oid FROM pg_proc p
    WHERE p.pronamespace = 'posthaste'::regnamespace AND p.prorettype = 'trigger'::regtype
                      AND p.proname IN (SELECT 'sync_' || e || '_' || p_name
                          FROM unnest(ARRAY['stamp', 'begin', 'insert', 'update', 'move', 'delete',
                            'truncate']) e) LOOP
    EXECUTE format('DROP FUNCTION %s CASCADE', v_function);
  END LOOP;
END $f$;

-- Drops sequences that no sync uses any more.
CREATE OR REPLACE FUNCTION posthaste.unsync_sequences(p_drawn_by text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF p_drawn_by IS NOT NULL
     AND NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.drawn_by = p_drawn_by) THEN
    EXECUTE format('DROP SEQUENCE IF EXISTS posthaste.%I, posthaste.%I',
                   'sync_version_' || p_drawn_by, 'sync_deaths_' || p_drawn_by);
  END IF;
END $f$;

-- Removes this sync; others of its table stay. The column stays, but the versions are lost with the
-- sequence, so an index must be rebuilt afterwards.
CREATE OR REPLACE FUNCTION posthaste.unsync_table(name text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_drawn_by text;
BEGIN
  PERFORM set_config('client_min_messages', 'warning', true);
  PERFORM posthaste.unsync_triggers(name);
  DELETE FROM posthaste.audited a WHERE a.name = name;
  DELETE FROM posthaste.synced s WHERE s.name = name RETURNING s.drawn_by INTO v_drawn_by;
  PERFORM posthaste.unsync_sequences(v_drawn_by);
END $f$;
