-- The newest load, if it is of this source and did not come to its proof.
SELECT r.id, r.total, r.kills, r.removed
  FROM (SELECT * FROM public.package_run ORDER BY id DESC LIMIT 1) r
 WHERE r.source = $1 AND r.proven_at IS NULL
