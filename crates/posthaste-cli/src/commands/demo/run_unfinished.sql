-- The run over folder $1 that a program began and did not bring to its end.
SELECT id, files, unlisted, committed FROM public.file_run
 WHERE folder = $1 AND finished_at IS NULL
 ORDER BY id LIMIT 1
