UPDATE public.file_run SET finished_at = now() WHERE id = $1
