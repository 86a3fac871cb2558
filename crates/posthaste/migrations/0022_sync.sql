-- Index sync: tables whose rows an index is to show. Each row has a version; whoever writes the index writes it with that version, and no index takes an
-- older one after a newer. A job is enqueued with each change, in its transaction, and leaves only when the index was seen to be true.
--
-- What makes a version safe: of two versions of a row, the later one is the larger, also across its deletion and re-creation, whoever waited for whom. An
-- update draws from the table's sequence while it has the row's lock. An insert draws before it has anything: it may then wait in the unique index for a
-- transaction that deletes the key, and that one's draw may be larger. So an insert looks, when it is through, whether anybody has deleted anything since
-- its statement began, and if so draws again, by an update of its own rows. It looks at a sequence, which no snapshot holds back: this is right in
-- every isolation level, and nobody waits for anybody.

CREATE TABLE posthaste.synced (
  name     text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z_][a-z0-9_]{0,39}$'),
  relation regclass NOT NULL,
  key      name     NOT NULL,
  version  name     NOT NULL,
  deleted  name,                                   -- a boolean column: rows that are there and not to be found
  delay    interval NOT NULL DEFAULT '60 s' CHECK (delay >= '0'),  -- from a change until its job is due: direct indexing comes first
  draws    boolean  NOT NULL,                      -- the version is ours to draw
  enqueues boolean  NOT NULL                       -- changes enqueue their jobs by themselves
);

-- What the triggers of one table do. @key@, @version@ and @table@ are quoted identifiers, @name@ is a plain word. The parts between [draw and draw] are there where versions are
-- ours to draw, those between [own and own] where they are not; [job and job] where changes enqueue.
-- @insert@ is the beginning of the statement that enqueues: kwargs and their source follow. The program says what is going on by SET posthaste.tag.
CREATE FUNCTION posthaste.sync_triggers() RETURNS text LANGUAGE sql IMMUTABLE AS $f$ SELECT $sql$
[draw
CREATE OR REPLACE FUNCTION posthaste.sync_stamp_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  NEW.@version@ := nextval('posthaste.sync_version_@name@');
  RETURN NEW;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_stamp BEFORE INSERT OR UPDATE ON @table@ FOR EACH ROW EXECUTE FUNCTION posthaste.sync_stamp_@name@();

-- How many deletions there were when the oldest insert that is under way began. One within another clears it: the outer one then draws again.
CREATE OR REPLACE FUNCTION posthaste.sync_begin_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  IF coalesce(current_setting('posthaste.sync_@name@', true), '') = '' THEN
    PERFORM set_config('posthaste.sync_@name@', posthaste.position('posthaste.sync_deaths_@name@')::text, true);
  END IF;
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_begin BEFORE INSERT ON @table@ FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_begin_@name@();
draw]
CREATE OR REPLACE FUNCTION posthaste.sync_insert_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
[draw
DECLARE
  v_began bigint := nullif(current_setting('posthaste.sync_@name@', true), '')::bigint;
draw]
BEGIN
[job
  @insert@ jsonb_build_object('id', f.@key@::text) FROM fresh f;
job]
[draw
  PERFORM set_config('posthaste.sync_@name@', '', true);
  IF v_began IS DISTINCT FROM posthaste.position('posthaste.sync_deaths_@name@') THEN
    UPDATE @table@ t SET @version@ = 0 FROM fresh f WHERE t.@key@ = f.@key@;
  END IF;
draw]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_insert AFTER INSERT ON @table@ REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_insert_@name@();

[job
CREATE OR REPLACE FUNCTION posthaste.sync_update_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  @insert@ jsonb_build_object('id', f.@key@::text) FROM fresh f;
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_update AFTER UPDATE ON @table@ REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_update_@name@();
job]

-- A new key: the old one is deleted, and the new one may have waited in the unique index like an insert.
CREATE OR REPLACE FUNCTION posthaste.sync_move_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint := [own OLD.@version@ own] [draw nextval('posthaste.sync_version_@name@') draw];
BEGIN
[draw
  PERFORM nextval('posthaste.sync_deaths_@name@');
  UPDATE @table@ t SET @version@ = 0 WHERE t.@key@ IN (OLD.@key@, NEW.@key@);
draw]
[job
  @insert@ jsonb_build_object('id', OLD.@key@::text, 'deleted', v_version);
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_move AFTER UPDATE ON @table@ FOR EACH ROW WHEN (OLD.@key@ IS DISTINCT FROM NEW.@key@) EXECUTE FUNCTION posthaste.sync_move_@name@();

-- A key that the same statement deletes and creates draws again: nobody knows which of the two came first.
CREATE OR REPLACE FUNCTION posthaste.sync_delete_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM gone) THEN
    RETURN NULL;
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@name@');
  PERFORM nextval('posthaste.sync_deaths_@name@');
  UPDATE @table@ t SET @version@ = 0 FROM gone g WHERE t.@key@ = g.@key@;
draw]
[job
  @insert@ jsonb_build_object('id', g.@key@::text, 'deleted', [own g.@version@ own] [draw v_version draw]) FROM gone g;
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_delete AFTER DELETE ON @table@ REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_delete_@name@();

-- An old snapshot does not show all the rows that TRUNCATE takes.
CREATE OR REPLACE FUNCTION posthaste.sync_truncate_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: TRUNCATE of a synced table needs READ COMMITTED' USING ERRCODE = 'feature_not_supported', HINT = 'DELETE works everywhere.';
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@name@');
  PERFORM nextval('posthaste.sync_deaths_@name@');
draw]
[job
  @insert@ jsonb_build_object('id', g.@key@::text, 'deleted', [own g.@version@ own] [draw v_version draw]) FROM @table@ g;
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_truncate BEFORE TRUNCATE ON @table@ FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_truncate_@name@();
$sql$ $f$;

-- Lets an index show the rows of a table: adds the column where it lacks, and the triggers. draw => false: the column is the program's own, and ascends for each key,
-- also across deletions. enqueue => false: the program calls posthaste.sync() by itself, for deletions too. Again with other arguments changes it.
CREATE FUNCTION posthaste.sync_table(relation regclass, key name DEFAULT 'id', version name DEFAULT 'version', name text DEFAULT NULL, deleted name DEFAULT NULL,
                                     delay interval DEFAULT '60 s', draw boolean DEFAULT true, enqueue boolean DEFAULT true)
RETURNS text LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  v_table text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
  v_sql text;
BEGIN
  name := coalesce(name, (SELECT c.relname FROM pg_class c WHERE c.oid = relation));
  -- Statements to a parent would not fire the triggers of its parts, nor those to a part its parent's.
  IF EXISTS (SELECT FROM pg_class c WHERE c.oid = relation AND (c.relkind <> 'r' OR c.relispartition OR c.relhassubclass))
     OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = relation) THEN
    RAISE EXCEPTION 'posthaste: %: only an ordinary table without parts can be synced', relation USING ERRCODE = 'wrong_object_type';
  END IF;
  -- Where a key is taken twice until the commit, nobody waits for the one who deletes it.
  IF NOT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON (a.attrelid, a.attnum) = (i.indrelid, i.indkey[0])
                  WHERE i.indrelid = relation AND i.indnkeyatts = 1 AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
                    AND a.attname = key AND a.attnotnull) THEN
    RAISE EXCEPTION 'posthaste: %: % must be NOT NULL and have a unique index that is not deferrable', relation, key USING ERRCODE = 'invalid_parameter_value';
  END IF;
  EXECUTE format('LOCK TABLE %s', v_table);
  IF draw THEN
    EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS %I bigint NOT NULL DEFAULT 0', v_table, version);
  END IF;
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = relation AND a.attname = version AND a.atttypid = 'bigint'::regtype AND a.attnotnull) THEN
    RAISE EXCEPTION 'posthaste: %: % must be a bigint and NOT NULL', relation, version USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO posthaste.synced AS s (name, relation, key, version, deleted, delay, draws, enqueues)
  VALUES (name, relation, key, version, deleted, delay, draw, enqueue)
  ON CONFLICT ON CONSTRAINT synced_pkey DO UPDATE SET (key, version, deleted, delay, draws, enqueues) = (key, version, deleted, delay, draw, enqueue)
   WHERE s.relation = relation;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'posthaste: % is the name of another synced table', name USING ERRCODE = 'duplicate_object';
  END IF;
  PERFORM set_config('client_min_messages', 'warning', true);
  PERFORM posthaste.unsync_triggers(name);
  IF draw THEN
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS posthaste.%I MINVALUE 0 START 0', 'sync_version_' || name);
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS posthaste.%I MINVALUE 0 START 0', 'sync_deaths_' || name);
    EXECUTE format('SELECT setval(%1$L, greatest((SELECT last_value FROM posthaste.%2$I), (SELECT max(t.%3$I) FROM %4$s t), 0)), nextval(%5$L)',
                   'posthaste.sync_version_' || name, 'sync_version_' || name, version, v_table, 'posthaste.sync_deaths_' || name);
    IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'posthaste_producer') THEN
      EXECUTE format('GRANT SELECT, USAGE ON SEQUENCE posthaste.%I, posthaste.%I TO posthaste_producer, posthaste_worker', 'sync_version_' || name, 'sync_deaths_' || name);
      EXECUTE format('GRANT SELECT ON SEQUENCE posthaste.%I, posthaste.%I TO posthaste_observer', 'sync_version_' || name, 'sync_deaths_' || name);
    END IF;
  END IF;
  v_sql := posthaste.sync_triggers();
  v_sql := CASE WHEN draw THEN regexp_replace(v_sql, '\[own.*?own\]', '', 'g') ELSE regexp_replace(v_sql, '\[draw.*?draw\]', '', 'g') END;
  v_sql := CASE WHEN enqueue THEN v_sql ELSE regexp_replace(v_sql, '\[job.*?job\]', '', 'g') END;
  v_sql := regexp_replace(v_sql, '\[(own|draw|job)|(own|draw|job)\]', '', 'g');
  v_sql := replace(v_sql, '@insert@', $sql$INSERT INTO posthaste.job (name, queue, scheduled_at, tag, max_attempts, kwargs)
  SELECT 'sync.@name@', 'sync.@name@', clock_timestamp() + (SELECT s.delay FROM posthaste.synced s WHERE s.name = '@name@'), coalesce(current_setting('posthaste.tag', true), ''), NULL,$sql$);
  v_sql := replace(replace(replace(replace(v_sql, '@name@', name), '@table@', v_table), '@key@', quote_ident(key)), '@version@', quote_ident(version));
  EXECUTE v_sql;
  RETURN name;
END $f$;

-- Takes the triggers away, with their functions.
CREATE FUNCTION posthaste.unsync_triggers(p_name text) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  v_function regprocedure;
BEGIN
  FOR v_function IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'posthaste'::regnamespace AND p.prorettype = 'trigger'::regtype
                      AND p.proname IN (SELECT 'sync_' || e || '_' || p_name FROM unnest(ARRAY['stamp', 'begin', 'insert', 'update', 'move', 'delete', 'truncate']) e) LOOP
    EXECUTE format('DROP FUNCTION %s CASCADE', v_function);
  END LOOP;
END $f$;

-- The table is not synced any more. Its column stays; its versions are forgotten with the sequence, so an index of it is to be made anew.
CREATE FUNCTION posthaste.unsync_table(name text) RETURNS void LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
BEGIN
  PERFORM set_config('client_min_messages', 'warning', true);
  PERFORM posthaste.unsync_triggers(name);
  EXECUTE format('DROP SEQUENCE IF EXISTS posthaste.%I, posthaste.%I', 'sync_version_' || name, 'sync_deaths_' || name);
  DELETE FROM posthaste.synced s WHERE s.name = name;
END $f$;

-- One job by hand, in the transaction of the change: delay as the table says unless given. deleted: the version of a deletion, which must be larger than that of the
-- row was, and smaller than that of a row with the same key afterwards. force: the document is written although its version is the same.
CREATE FUNCTION posthaste.sync(name text, id text, delay interval DEFAULT NULL, deleted bigint DEFAULT NULL, force boolean DEFAULT false, tag text DEFAULT '',
                               priority integer DEFAULT 0)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
BEGIN
  delay := coalesce(delay, (SELECT s.delay FROM posthaste.synced s WHERE s.name = name), interval '60 s');
  RETURN posthaste.enqueue('sync.' || name, jsonb_strip_nulls(jsonb_build_object('id', id, 'deleted', deleted, 'force', nullif(force, false))), 'sync.' || name,
                           priority, clock_timestamp() + delay, NULL, tag, NULL, NULL);
END $f$;

-- Versions of a synced table begin beyond this one, and these rows get new ones: for an index that is ahead of its table, because the table was restored or lost commits.
CREATE FUNCTION posthaste.sync_raise(name text, beyond bigint, ids text[]) RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  s posthaste.synced;
  v_rows bigint;
BEGIN
  SELECT * INTO STRICT s FROM posthaste.synced o WHERE o.name = name AND o.draws;
  EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', s.relation);
  PERFORM setval(format('posthaste.sync_version_%s', name)::regclass, greatest(posthaste.position(format('posthaste.sync_version_%s', name)), beyond));
  EXECUTE format('UPDATE %s t SET %I = 0 WHERE t.%I::text = ANY ($1)', s.relation, s.version, s.key) USING ids;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- The type of a synced table's key.
CREATE FUNCTION posthaste.sync_key_type(s posthaste.synced) RETURNS text LANGUAGE sql STABLE AS $f$
  SELECT format_type(a.atttypid, NULL) FROM pg_attribute a WHERE a.attrelid = s.relation AND a.attname = s.key
$f$;

-- Those of these texts that can be keys of a synced table. Any other is that of no row, and is in the way of none.
CREATE FUNCTION posthaste.sync_keys(s posthaste.synced, p_ids text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_type text := posthaste.sync_key_type(s);
  v_id   text;
  v_keys text[] := '{}';
BEGIN
  BEGIN
    EXECUTE format('SELECT $1::%s[]', v_type) USING p_ids;
    RETURN p_ids;
  EXCEPTION WHEN data_exception THEN
    NULL;
  END;
  FOREACH v_id IN ARRAY p_ids LOOP
    BEGIN
      EXECUTE format('SELECT $1::%s', v_type) USING v_id;
      v_keys := v_keys || v_id;
    EXCEPTION WHEN data_exception THEN
      NULL;
    END;
  END LOOP;
  RETURN v_keys;
END $f$;

-- Rows of a synced table by their keys; document is NULL for a row that is not to be found.
CREATE FUNCTION posthaste.sync_rows(p_name text, p_ids text[]) RETURNS TABLE (id text, version bigint, document jsonb) LANGUAGE plpgsql STABLE AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  SELECT * INTO STRICT s FROM posthaste.synced o WHERE o.name = p_name;
  RETURN QUERY EXECUTE format('SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t WHERE t.%1$I = ANY ($1::%5$s[])', s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN format('to_jsonb(t) - %L', s.version)
         ELSE format('CASE WHEN t.%I IS TRUE THEN NULL ELSE to_jsonb(t) - %L END', s.deleted, s.version) END,
    s.relation, posthaste.sync_key_type(s)) USING posthaste.sync_keys(s, p_ids);
END $f$;

-- As sync_rows, without making the documents.
CREATE FUNCTION posthaste.sync_versions(p_name text, p_ids text[]) RETURNS TABLE (id text, version bigint, is_there boolean) LANGUAGE plpgsql STABLE AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  SELECT * INTO STRICT s FROM posthaste.synced o WHERE o.name = p_name;
  RETURN QUERY EXECUTE format('SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t WHERE t.%1$I = ANY ($1::%5$s[])', s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN 'true' ELSE format('t.%I IS NOT TRUE', s.deleted) END, s.relation, posthaste.sync_key_type(s)) USING posthaste.sync_keys(s, p_ids);
END $f$;

-- The next rows after one, in the order of the key, as sync_versions gives them.
CREATE FUNCTION posthaste.sync_page(p_name text, p_after text, p_most bigint) RETURNS TABLE (id text, version bigint, is_there boolean) LANGUAGE plpgsql STABLE AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  SELECT * INTO STRICT s FROM posthaste.synced o WHERE o.name = p_name;
  RETURN QUERY EXECUTE format('SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t %6$s ORDER BY t.%1$I LIMIT $2', s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN 'true' ELSE format('t.%I IS NOT TRUE', s.deleted) END, s.relation, posthaste.sync_key_type(s),
    CASE WHEN p_after IS NULL THEN '' ELSE format('WHERE t.%I > $1::%s', s.key, posthaste.sync_key_type(s)) END) USING p_after, p_most;
END $f$;

-- Postgres as the index: what is found, in a table of its own beside or in another database. The last write of a document is the one with the largest
-- (version, pass), whatever came last; a deletion stays as a row without words, so that a late write of what was deleted finds something larger.
CREATE TABLE posthaste.search (
  version    bigint      NOT NULL,
  token      bigint      NOT NULL,   -- whose write it was, for passes that must see their own
  deleted_at timestamptz,
  pass       integer     NOT NULL,
  index      text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  words      tsvector    NOT NULL,
  PRIMARY KEY (index, id)
) WITH (fillfactor = 80);
CREATE INDEX search_words ON posthaste.search USING gin (words);
CREATE INDEX search_deleted_at ON posthaste.search (index, deleted_at) WHERE deleted_at IS NOT NULL;

-- The words of a document: of all its texts, or of those fields that have a weight ({"title": "A"}).
CREATE FUNCTION posthaste.search_words(config regconfig, document jsonb, weights jsonb) RETURNS tsvector LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_words tsvector := '';
  w record;
BEGIN
  IF document IS NULL THEN
    RETURN v_words;
  ELSIF weights IS NULL OR weights = '{}' THEN
    RETURN jsonb_to_tsvector(config, document, '["string"]');
  END IF;
  FOR w IN SELECT e.key AS field, e.value AS weight FROM jsonb_each_text(weights) e ORDER BY e.key LOOP
    v_words := v_words || setweight(to_tsvector(config, coalesce(document ->> w.field, '')), w.weight::"char");
  END LOOP;
  RETURN v_words;
END $f$;

-- Writes documents and says of each what became of it: true, or false for one of which the index has the same or something newer. In the order of the ids, so that two
-- writers do not wait for each other in a circle; each id once.
CREATE FUNCTION posthaste.search_write(p_index text, p_config regconfig, p_weights jsonb, p_ids text[], p_versions bigint[], p_passes integer[], p_tokens bigint[],
                                       p_documents jsonb[])
RETURNS TABLE (id text, is_written boolean) LANGUAGE sql AS $f$
  WITH wanted AS MATERIALIZED (
    SELECT w.* FROM unnest(p_ids, p_versions, p_passes, p_tokens, p_documents) w(id, version, pass, token, document) ORDER BY w.id COLLATE "C"
  ), written AS (
    INSERT INTO posthaste.search AS s (index, id, version, pass, token, deleted_at, words)
    SELECT p_index, w.id, w.version, w.pass, w.token, CASE WHEN w.document IS NULL THEN clock_timestamp() END, posthaste.search_words(p_config, w.document, p_weights)
      FROM wanted w ORDER BY w.id COLLATE "C"
    ON CONFLICT (index, id) DO UPDATE
       SET (version, pass, token, deleted_at, words) = (excluded.version, excluded.pass, excluded.token, excluded.deleted_at, excluded.words)
     WHERE (s.version, s.pass) < (excluded.version, excluded.pass)
    RETURNING s.id
  )
  SELECT w.id, w.id IN (SELECT n.id FROM written n) FROM wanted w
$f$;
