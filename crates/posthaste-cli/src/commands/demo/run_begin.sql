INSERT INTO public.file_run (folder) VALUES ($1) RETURNING id
