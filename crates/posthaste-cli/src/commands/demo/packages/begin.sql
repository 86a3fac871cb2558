-- A load begins.
INSERT INTO public.package_run (total) VALUES ($1::bigint) RETURNING id
