-- A load begins; its index is the one of the loads before it.
INSERT INTO public.package_run (total, folder)
SELECT $1::bigint, coalesce((SELECT r.folder FROM public.package_run r ORDER BY r.id LIMIT 1), 'index-' || gen_random_uuid())
RETURNING id, folder
