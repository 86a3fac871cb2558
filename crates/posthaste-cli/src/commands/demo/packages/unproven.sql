-- The newest load, if it has this source and was not proven.
SELECT r.id, r.total, r.kills, r.removed
  FROM (SELECT * FROM public.package_run ORDER BY id DESC LIMIT 1) r
 WHERE r.source = $1 AND r.proven_at IS NULL
