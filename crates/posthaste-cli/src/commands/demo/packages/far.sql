-- The progress of a load, and its changes meanwhile.
SELECT r.loaded, r.total, r.changed, r.deleted FROM public.package_run r WHERE r.id = $1
