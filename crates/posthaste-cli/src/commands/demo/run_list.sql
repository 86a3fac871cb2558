-- Appends files to the list of run $1, which has $2.
INSERT INTO public.file_list (run, n, path)
SELECT $1, $2::bigint + l.n, l.path FROM pg_catalog.unnest($3::bytea[]) WITH ORDINALITY l (path, n)
