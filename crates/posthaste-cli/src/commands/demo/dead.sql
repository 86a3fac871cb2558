-- Files whose jobs are dead.
SELECT count(*) FROM posthaste.dead d
  JOIN public.file f ON d.kwargs = pg_catalog.jsonb_build_object('file', f.id)
 WHERE d.name = 'file.digest' AND f.run = $1 AND f.worked_at IS NULL
