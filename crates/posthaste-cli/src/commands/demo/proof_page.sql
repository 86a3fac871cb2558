-- Listed files, each with its row of the table.
SELECT l.n, l.path, f.path IS NOT DISTINCT FROM l.path AS present,
       f.worked_at IS NOT NULL AS worked, f.size, f.sha256, f.problem
  FROM public.file_list l LEFT JOIN public.file f ON f.run = l.run AND f.n = l.n
 WHERE l.run = $1 AND l.n > $2 ORDER BY l.n LIMIT $3
