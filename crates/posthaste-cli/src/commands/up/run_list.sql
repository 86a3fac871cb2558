COPY public.file_list (run, n, path) FROM STDIN (FORMAT binary)
