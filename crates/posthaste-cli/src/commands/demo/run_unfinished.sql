-- The run over folder $1 that a program began and did not bring to its end; one that is proven only
-- where $2 says that something comes after the proof.
SELECT id, files, unlisted, committed, proof FROM public.file_run
 WHERE folder = $1 AND finished_at IS NULL AND (proof IS NULL OR $2)
 ORDER BY id LIMIT 1
