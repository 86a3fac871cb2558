UPDATE public.file_run SET finished_at = now(), differing = $2 WHERE id = $1
