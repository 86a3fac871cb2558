-- The unfinished run over folder $1; a proven one only if further steps follow the proof ($2).
SELECT id, files, unlisted, committed, proof FROM public.file_run
 WHERE folder = $1 AND finished_at IS NULL AND (proof IS NULL OR $2)
 ORDER BY id LIMIT 1
