-- How far a load is; nobody else goes on with it before this transaction ends.
SELECT r.loaded, r.total FROM public.package_run r WHERE r.id = $1 FOR UPDATE
