-- Rows that no listed file accounts for.
SELECT count(*) FROM public.file f WHERE f.run = $1
   AND NOT EXISTS (SELECT FROM public.file_list l WHERE l.run = f.run AND l.n = f.n)
