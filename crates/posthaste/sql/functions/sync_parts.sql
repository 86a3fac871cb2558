-- Index sync: triggers of partitioned tables and of partitions. Only row triggers are added to
-- partitions that are created or attached later, and see changes of a partition as changes through
-- its parents. So changes enqueue row by row here; versions are as safe as in sync_triggers.sql,
-- for the same reasons.

-- Whether a table is partitioned or a partition.
CREATE OR REPLACE FUNCTION posthaste.sync_in_parts(s posthaste.synced) RETURNS boolean
LANGUAGE sql STABLE AS $f$
  SELECT c.relkind = 'p' OR c.relispartition FROM pg_class c WHERE c.oid = s.relation::oid
$f$;

-- The unique index of a table's key. If the table is partitioned by another column, no index can
-- have the key alone: then one with the partition columns after the key is used.
CREATE OR REPLACE FUNCTION posthaste.sync_index(s posthaste.synced) RETURNS oid
LANGUAGE sql STABLE AS $f$
  SELECT i.indexrelid
    FROM pg_index i
    JOIN pg_attribute a ON (a.attrelid, a.attnum) = (i.indrelid, i.indkey[0])
   WHERE i.indrelid = s.relation AND i.indisunique AND i.indimmediate AND i.indisvalid
     AND i.indpred IS NULL AND a.attname = s.key AND a.attnotnull
     AND NOT EXISTS (
       SELECT FROM generate_series(1, i.indnkeyatts - 1) n
         LEFT JOIN pg_attribute o ON (o.attrelid, o.attnum) = (i.indrelid, i.indkey[n])
        WHERE o.attname IS NULL OR o.attname NOT IN (
          SELECT k.attname
            FROM (SELECT relid FROM pg_partition_ancestors(s.relation)
                  UNION SELECT relid FROM pg_partition_tree(s.relation)) r
            JOIN pg_partitioned_table p ON p.partrelid = r.relid
            JOIN pg_attribute k ON k.attrelid = r.relid AND k.attnum = ANY (p.partattrs)))
   ORDER BY i.indnkeyatts, NOT i.indisprimary, i.indexrelid LIMIT 1
$f$;

-- As sync_triggers(), which explains the placeholders. @literal@ is the table's name as a string.
CREATE OR REPLACE FUNCTION posthaste.sync_triggers_of_parts() RETURNS text
  LANGUAGE sql IMMUTABLE AS $f$ SELECT $sql$
[draw
-- An insert also records the number of deletions before the first draw of its statement. The
-- server's statement contains all that began within the program's, so this may be higher than
-- needed.
CREATE OR REPLACE FUNCTION posthaste.sync_stamp_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_statement text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    v_statement := extract(epoch FROM statement_timestamp())::text;
    IF split_part(coalesce(current_setting('posthaste.parts_@name@', true), ''), '/', 1)
       <> v_statement THEN
      PERFORM set_config('posthaste.parts_@name@', v_statement || '/' ||
                         posthaste.position('posthaste.sync_deaths_@drawn@')::text, true);
    END IF;
  END IF;
  NEW.@version@ := nextval('posthaste.sync_version_@drawn@'::regclass);
  RETURN NEW;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_stamp_@name@ BEFORE INSERT OR UPDATE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_stamp_@name@();
draw]
CREATE OR REPLACE FUNCTION posthaste.sync_insert_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
[job
  @enqueue pg_catalog.jsonb_build_object('id', NEW.@key@::text) FROM (SELECT) f enqueue@
job]
[draw
  IF split_part(coalesce(current_setting('posthaste.parts_@name@', true), ''), '/', 2)
     <> posthaste.position('posthaste.sync_deaths_@drawn@')::text THEN
    UPDATE @table@ t SET @version@ = 0 WHERE t.@key@ @is@ NEW.@key@;
  END IF;
draw]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_insert_@name@ AFTER INSERT ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_insert_@name@();

[job
CREATE OR REPLACE FUNCTION posthaste.sync_update_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  @enqueue pg_catalog.jsonb_build_object('id', NEW.@key@::text) FROM (SELECT) f enqueue@
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_update_@name@ AFTER UPDATE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_update_@name@();
job]

CREATE OR REPLACE FUNCTION posthaste.sync_delete_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint := [own OLD.@version@ own]
                      [draw nextval('posthaste.sync_version_@drawn@'::regclass) draw];
BEGIN
[draw
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
  UPDATE @table@ t SET @version@ = 0 WHERE t.@key@ @is@ OLD.@key@;
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', OLD.@key@::text, 'deleted', v_version)
    FROM (SELECT) f enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_delete_@name@ AFTER DELETE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_delete_@name@();

-- TRUNCATE of a parent fires the triggers of its partitions too. Partitions without one, because
-- they were added later, are handled by the parent's trigger. A detached partition does not belong
-- to the table.
CREATE OR REPLACE FUNCTION posthaste.sync_truncate_@name@() RETURNS trigger LANGUAGE plpgsql
SET row_security = off AS $t$
DECLARE
  v_part    regclass;
  v_id      text;
  v_version bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: TRUNCATE of a synced table needs READ COMMITTED'
      USING ERRCODE = 'feature_not_supported', HINT = 'DELETE works in every isolation level.';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_partition_ancestors(TG_RELID::regclass) p
                  WHERE p.relid::oid = @literal@::regclass::oid)
     AND TG_RELID <> @literal@::regclass::oid THEN
    RETURN NULL;
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@drawn@'::regclass);
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
draw]
[job
  FOR v_part IN
    SELECT c.oid::regclass FROM pg_class c
     WHERE c.relkind = 'r'
       AND (c.oid = TG_RELID
            OR c.oid IN (SELECT p.relid::oid FROM pg_partition_tree(TG_RELID::regclass) p)
               AND NOT EXISTS (
                 SELECT FROM pg_trigger g
                  WHERE g.tgrelid = c.oid AND g.tgname = TG_NAME
                    AND (g.tgenabled = 'A' OR g.tgenabled = 'O'
                         AND current_setting('session_replication_role') <> 'replica'))) LOOP
    FOR v_id, v_version IN
      EXECUTE 'SELECT t.' || @key_literal@ || '::text, ' || [own 't.' || @version_literal@ own]
              [draw v_version::text draw] || ' FROM ONLY ' || v_part::text || ' t' LOOP
      @enqueue pg_catalog.jsonb_build_object('id', v_id, 'deleted', v_version)
        FROM (SELECT) f enqueue@
    END LOOP;
  END LOOP;
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_truncate_@name@ BEFORE TRUNCATE ON @table@ FOR EACH STATEMENT
  EXECUTE FUNCTION posthaste.sync_truncate_@name@();
$sql$ $f$;

-- TRUNCATE has no row trigger: each existing partition gets its own.
CREATE OR REPLACE FUNCTION posthaste.sync_truncates(s posthaste.synced)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_part regclass;
  v_name text := 'posthaste_truncate_' || s.name;
BEGIN
  FOR v_part IN SELECT p.relid FROM pg_partition_tree(s.relation) p WHERE p.relid <> s.relation LOOP
    EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE TRUNCATE ON %s FOR EACH STATEMENT
                    EXECUTE FUNCTION posthaste.%I()', v_name, v_part, 'sync_truncate_' || s.name);
    IF s.always THEN
      EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', v_part, v_name);
    END IF;
  END LOOP;
END $f$;
