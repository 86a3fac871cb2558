INSERT INTO public.file (run, n, path)
SELECT run, n, path FROM public.file_list WHERE run = $1 AND n > $2 AND n <= $3 ORDER BY n
RETURNING id
