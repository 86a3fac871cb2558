UPDATE public.file SET size = $2, sha256 = $3, problem = $4, attempts = $5, worked_at = now()
 WHERE id = $1
