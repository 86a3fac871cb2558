-- Unfinished jobs of run $1.
SELECT count(*) FROM posthaste.job j
  JOIN public.file f ON j.kwargs = pg_catalog.jsonb_build_object('file', f.id)
 WHERE j.name = 'file.digest' AND j.state NOT IN ('dead', 'expired', 'discarded') AND f.run = $1
