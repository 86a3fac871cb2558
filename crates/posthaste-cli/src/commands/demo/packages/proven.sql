UPDATE public.package_run SET proven_at = now() WHERE id = $1
