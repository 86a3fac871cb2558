UPDATE public.file_run SET files = $2, unlisted = $3 WHERE id = $1
