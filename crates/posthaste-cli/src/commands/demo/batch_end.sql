UPDATE public.file_run SET committed = $2 WHERE id = $1
