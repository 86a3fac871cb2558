-- Inserts packages, of which some may have the same name; existing ones are updated.
INSERT INTO public.package AS p (name, release, section, summary, details)
SELECT DISTINCT ON (r.name COLLATE "C") r.name, r.release, r.section, r.summary, r.details
  FROM jsonb_to_recordset($1::jsonb) r(name text, release text, section text, summary text,
                                       details text)
 ORDER BY r.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET (release, section, summary, details) =
  (excluded.release, excluded.section, excluded.summary, excluded.details)
