-- Starts a load.
INSERT INTO public.package_run (total, source) VALUES ($1::bigint, $2) RETURNING id
