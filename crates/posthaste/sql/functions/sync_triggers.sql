-- Index sync: triggers of synced tables. Each row has a version, with which its document is
-- written, and no index replaces a newer version by an older one. Each change enqueues a job in its
-- transaction; the job completes only after it has found the index correct.
--
-- Of two versions of a row, the later one must be larger, also across its deletion and re-creation,
-- whichever transaction waited for the other. An update draws from the table's sequence while it
-- has the row's lock. An insert draws before it has a lock: it may then wait in the unique index
-- for a transaction that deletes the key, whose version may be larger. So at its end an insert
-- checks whether any row was deleted since its statement began, and if so draws again, by an update
-- of the inserted rows. It checks a sequence, which does not depend on a snapshot: this is correct
-- in every isolation level, and no session waits.

-- The template of the triggers of one sync; a table may have several. @key@, @version@ and @table@
-- are quoted identifiers, @name@ and @drawn@ are plain words. Parts between [draw and draw] are
-- used if posthaste draws the versions, those between [own and own] if the program sets them, and
-- those between [job and job] if changes enqueue jobs. The text between @enqueue and enqueue@ is
-- the kwargs of the jobs and the FROM of their source. Programs set the tag of the jobs by SET
-- posthaste.tag. If two syncs draw for one column, each draws: the later value stays, and is
-- larger.
--
-- The triggers run under the writer's search_path, because other triggers of the table may need it.
-- So their names are exact (sql/README.md): @is@ is the equality operator of the key's index.
CREATE OR REPLACE FUNCTION posthaste.sync_triggers() RETURNS text
  LANGUAGE sql IMMUTABLE AS $f$ SELECT $sql$
[draw
CREATE OR REPLACE FUNCTION posthaste.sync_stamp_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  NEW.@version@ := nextval('posthaste.sync_version_@drawn@'::regclass);
  RETURN NEW;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_stamp_@name@ BEFORE INSERT OR UPDATE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_stamp_@name@();

-- The number of deletions when the oldest active insert began. A nested insert clears it: the outer
-- one then draws again.
CREATE OR REPLACE FUNCTION posthaste.sync_begin_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  IF coalesce(current_setting('posthaste.sync_@name@', true), '') = '' THEN
    PERFORM set_config('posthaste.sync_@name@',
                       posthaste.position('posthaste.sync_deaths_@drawn@')::text, true);
  END IF;
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_begin_@name@ BEFORE INSERT ON @table@ FOR EACH STATEMENT
  EXECUTE FUNCTION posthaste.sync_begin_@name@();
draw]
CREATE OR REPLACE FUNCTION posthaste.sync_insert_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
[draw
DECLARE
  v_began bigint := nullif(current_setting('posthaste.sync_@name@', true), '')::bigint;
draw]
BEGIN
[job
  @enqueue pg_catalog.jsonb_build_object('id', f.@key@::text) FROM fresh f enqueue@
job]
[draw
  PERFORM set_config('posthaste.sync_@name@', '', true);
  IF v_began IS DISTINCT FROM posthaste.position('posthaste.sync_deaths_@drawn@') THEN
    UPDATE @table@ t SET @version@ = 0 FROM fresh f WHERE t.@key@ @is@ f.@key@;
  END IF;
draw]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_insert_@name@ AFTER INSERT ON @table@
  REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_insert_@name@();

[job
CREATE OR REPLACE FUNCTION posthaste.sync_update_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  @enqueue pg_catalog.jsonb_build_object('id', f.@key@::text) FROM fresh f enqueue@
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_update_@name@ AFTER UPDATE ON @table@
  REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_update_@name@();
job]

-- A key that the same statement deletes and creates draws again: the order of the two is unknown.
CREATE OR REPLACE FUNCTION posthaste.sync_delete_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM gone) THEN
    RETURN NULL;
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@drawn@'::regclass);
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
  UPDATE @table@ t SET @version@ = 0 FROM gone g WHERE t.@key@ @is@ g.@key@;
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', g.@key@::text,
                              'deleted', [own g.@version@ own] [draw v_version draw])
    FROM gone g enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_delete_@name@ AFTER DELETE ON @table@
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_delete_@name@();

-- An old snapshot does not show all the rows that TRUNCATE removes, nor does row security.
CREATE OR REPLACE FUNCTION posthaste.sync_truncate_@name@() RETURNS trigger LANGUAGE plpgsql
SET row_security = off AS $t$
DECLARE
  v_version bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: TRUNCATE of a synced table needs READ COMMITTED'
      USING ERRCODE = 'feature_not_supported', HINT = 'DELETE works in every isolation level.';
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@drawn@'::regclass);
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', g.@key@::text,
                              'deleted', [own g.@version@ own] [draw v_version draw])
    FROM @table@ g enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_truncate_@name@ BEFORE TRUNCATE ON @table@ FOR EACH STATEMENT
  EXECUTE FUNCTION posthaste.sync_truncate_@name@();
$sql$ $f$;

-- Common to both kinds of tables: changed keys. The old key is deleted, and the new one may have
-- waited in the unique index like an insert. An update that moves a row to another partition is a
-- deletion and an insert for triggers too: for partitioned tables this handles a key that changes
-- within a partition. A key that is equal to the old one but written differently (1.0 and 1.00, or
-- a and A under a collation that ignores case) is another id: texts of keys are compared as bytes.
CREATE OR REPLACE FUNCTION posthaste.sync_trigger_of_moves() RETURNS text
  LANGUAGE sql IMMUTABLE AS $f$ SELECT $sql$
CREATE OR REPLACE FUNCTION posthaste.sync_move_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint := [own OLD.@version@ own]
                      [draw nextval('posthaste.sync_version_@drawn@'::regclass) draw];
BEGIN
[draw
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
  UPDATE @table@ t SET @version@ = 0 WHERE t.@key@ @is@ OLD.@key@ OR t.@key@ @is@ NEW.@key@;
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', OLD.@key@::text, 'deleted', v_version)
    FROM (SELECT) f enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_move_@name@ AFTER UPDATE ON @table@ FOR EACH ROW
  WHEN (NOT OLD.@key@ @is@ NEW.@key@
        OR OLD.@key@::text COLLATE pg_catalog."C" OPERATOR(pg_catalog.<>) NEW.@key@::text)
  EXECUTE FUNCTION posthaste.sync_move_@name@();
$sql$ $f$;

-- The statements that create the triggers of a sync. Under session_replication_role = replica the
-- rule of the view posthaste.job does not apply: jobs go one by one through the function.
CREATE OR REPLACE FUNCTION posthaste.sync_sql(s posthaste.synced, p_table text)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_sql text := CASE WHEN posthaste.sync_in_parts(s) THEN posthaste.sync_triggers_of_parts()
                     ELSE posthaste.sync_triggers() END || posthaste.sync_trigger_of_moves();
  v_jobs text := $sql$INSERT INTO posthaste.job
      (name, queue, scheduled_at, tag, max_attempts, kwargs)
    SELECT 'sync.@name@', 'sync.@name@', @due@, @tag@, NULL, \1;$sql$;
BEGIN
  IF s.always THEN
    v_jobs := $sql$IF current_setting('session_replication_role') = 'replica' THEN
    PERFORM posthaste.enqueue('sync.@name@', k.kwargs, 'sync.@name@', 0, @due@, NULL, @tag@, NULL,
                              NULL) FROM (SELECT \1) k(kwargs);
  ELSE
    $sql$ || v_jobs || $sql$
  END IF;$sql$;
    v_sql := regexp_replace(v_sql, '(CREATE OR REPLACE TRIGGER (\w+@name@) [^;]*;)',
                            '\1 ALTER TABLE @table@ ENABLE ALWAYS TRIGGER \2;', 'g');
  END IF;
  IF NOT s.enqueues THEN
    v_sql := regexp_replace(v_sql, '\[job.*?job\]', '', 'g');
  END IF;
  v_sql := regexp_replace(v_sql, CASE WHEN s.draws THEN '\[own.*?own\]' ELSE '\[draw.*?draw\]' END,
                          '', 'g');
  v_sql := regexp_replace(v_sql, '\[(own|draw|job)|(own|draw|job)\]', '', 'g');
  v_sql := regexp_replace(v_sql, '@enqueue (.*?) enqueue@', v_jobs, 'g');
  v_sql := replace(v_sql, '@due@', $sql$clock_timestamp() + (SELECT s.delay
      FROM posthaste.synced s WHERE s.name = '@name@')$sql$);
  v_sql := replace(v_sql, '@tag@', $sql$coalesce(current_setting('posthaste.tag', true), '')$sql$);
  v_sql := replace(replace(v_sql, '@name@', s.name), '@drawn@', s.drawn_by);
  v_sql := replace(v_sql, '@is@', posthaste.sync_operator(s, 3::smallint));
  v_sql := replace(replace(v_sql, '@literal@', quote_literal(p_table)),
                   '@key_literal@', quote_literal(quote_ident(s.key)));
  v_sql := replace(v_sql, '@version_literal@', quote_literal(quote_ident(s.version)));
  v_sql := replace(v_sql, '@key@', quote_ident(s.key));
  RETURN replace(replace(v_sql, '@version@', quote_ident(s.version)), '@table@', p_table);
END $f$;
