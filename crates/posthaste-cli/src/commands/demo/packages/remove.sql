-- The process of load $3 was killed for the $4th time. Removes up to $2 documents after $1 from the
-- index, which posthaste would not do, and returns the total number removed.
WITH gone AS (
  DELETE FROM posthaste.search s
   WHERE s.index = 'demo_package'
     AND s.id IN (SELECT d.id FROM posthaste.search d
                   WHERE d.index = 'demo_package' AND d.id > $1::text AND d.deleted_at IS NULL
                   ORDER BY d.id LIMIT $2::bigint)
  RETURNING 1)
UPDATE public.package_run r SET kills = $4::integer,
       removed = r.removed + (SELECT count(*) FROM gone)
 WHERE r.id = $3 RETURNING r.removed
