-- Postgres as the index: its documents.

-- The words of a document: of all its texts, or only of the fields that have a weight ({"title":
-- "A"}).
CREATE OR REPLACE FUNCTION posthaste.search_words(config regconfig, document jsonb, weights jsonb)
RETURNS tsvector LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_words tsvector := '';
  w record;
BEGIN
  IF document IS NULL THEN
    RETURN v_words;
  ELSIF weights IS NULL OR weights = '{}' THEN
    RETURN jsonb_to_tsvector(config, document, '["string"]');
  END IF;
  FOR w IN SELECT e.key AS field, e.value AS weight FROM jsonb_each_text(weights) e
    ORDER BY e.key LOOP
    v_words := v_words
      || setweight(to_tsvector(config, coalesce(document ->> w.field, '')), w.weight::"char");
  END LOOP;
  RETURN v_words;
END $f$;

-- Writes documents and returns for each whether it was written: false if the index has the same or
-- a newer version. In the order of the ids, so that two writers do not deadlock; each id once.
CREATE OR REPLACE FUNCTION posthaste.search_write(
  p_index text, p_config regconfig, p_weights jsonb, p_ids text[], p_versions bigint[],
  p_passes integer[], p_tokens bigint[], p_documents jsonb[])
RETURNS TABLE (id text, is_written boolean) LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  WITH wanted AS MATERIALIZED (
    SELECT w.*
      FROM unnest(p_ids, p_versions, p_passes, p_tokens, p_documents) w(id, version, pass, token,
        document) ORDER BY w.id COLLATE "C"
  ), written AS (
    INSERT INTO posthaste.search AS s (index, id, version, pass, token, deleted_at, words)
    SELECT p_index, w.id, w.version, w.pass, w.token,
           CASE WHEN w.document IS NULL THEN clock_timestamp() END,
           posthaste.search_words(p_config, w.document, p_weights)
      FROM wanted w ORDER BY w.id COLLATE "C"
    ON CONFLICT (index, id) DO UPDATE
       SET (version, pass, token, deleted_at, words) = (excluded.version, excluded.pass,
           excluded.token, excluded.deleted_at, excluded.words)
     WHERE (s.version, s.pass) < (excluded.version, excluded.pass)
    RETURNING s.id
  )
  SELECT w.id, w.id IN (SELECT n.id FROM written n) FROM wanted w
$f$;
