-- The progress of a load; other programs wait until this transaction ends.
SELECT r.loaded, r.total FROM public.package_run r WHERE r.id = $1 FOR UPDATE
