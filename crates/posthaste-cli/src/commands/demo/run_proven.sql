UPDATE public.file_run SET differing = $2, proof = $3 WHERE id = $1
