-- How far a load is, and what was changed meanwhile.
SELECT r.loaded, r.total, r.changed, r.deleted FROM public.package_run r WHERE r.id = $1
