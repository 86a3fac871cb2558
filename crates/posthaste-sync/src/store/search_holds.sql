-- The documents of these that exist with exactly these words.
SELECT w.id
  FROM unnest($4::text[], $5::jsonb[]) w(id, document)
  JOIN posthaste.search s ON s.index = $1 AND s.id = w.id
 WHERE s.words = posthaste.search_words($2::text::regconfig, w.document, $3)
