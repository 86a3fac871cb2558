-- Relays: leases of ordered ones, their status, tables of other systems' outbox patterns, and the
-- receivers' inbox.

-- Arguments as a list if they are nothing else: as INSERT INTO posthaste.staged_jobs was given
-- them.
CREATE OR REPLACE FUNCTION posthaste.as_list(kwargs jsonb)
RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN jsonb_typeof(kwargs -> 'args'::text) = 'array' AND kwargs - 'args'::text = '{}'
              THEN kwargs -> 'args'::text ELSE kwargs END
$f$;

-- The key prevents that the id is taken twice, and finds the job for posthaste.confirm(). An
-- existing id changes nothing and counts as no row.
CREATE OR REPLACE FUNCTION posthaste.insert_outbox_row() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_row jsonb;
BEGIN
  NEW.id := coalesce(NEW.id, gen_random_uuid());
  IF NEW.created_at IS NOT NULL OR NEW.completed_at IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: created_at, completed_at: posthaste.outbox does not accept them'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF (NEW.payload IS NULL) = (NEW.table_name IS NULL)
    OR (NEW.table_name IS NULL) <> (NEW.table_id IS NULL) THEN
    RAISE EXCEPTION 'posthaste: payload: a row of posthaste.outbox has either '
      'a payload or table_name and table_id'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF EXISTS (SELECT FROM posthaste.unique_key u WHERE u.key = 'outbox:' || NEW.id) THEN
    RETURN NULL;
  END IF;
  IF NEW.payload IS NULL THEN
    v_row := jsonb_build_object('table_name', NEW.table_name, 'table_id', NEW.table_id);
  ELSE
    BEGIN
      v_row := jsonb_build_object('text', convert_from(NEW.payload, 'UTF8'));
    EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
      v_row := jsonb_build_object('hex', encode(NEW.payload, 'hex'));
    END;
  END IF;
  v_row := jsonb_build_object('posthaste.outbox', v_row || jsonb_build_object('id', NEW.id));
  PERFORM posthaste.enqueue(NEW.type, v_row, unique_key => 'outbox:' || NEW.id,
    trace => NEW.trace);
  NEW.created_at := clock_timestamp();
  RETURN NEW;
END $f$;
