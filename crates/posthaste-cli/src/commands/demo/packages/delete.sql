-- Deletes some rows, and creates every other of them again.
WITH gone AS (
  DELETE FROM public.package p
   WHERE abs(hashtext(p.name)::bigint) % 397::bigint = $1::bigint % 397::bigint RETURNING p.*
), again AS (
  INSERT INTO public.package (name, release, section, summary, details)
  SELECT g.name, g.release, g.section, g.summary || ' (again)', g.details FROM gone g
   WHERE length(g.name) % 2 = 0
)
SELECT count(*) FROM gone
