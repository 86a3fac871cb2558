-- Only the newest run of a folder is retained.
DELETE FROM public.file_run WHERE folder = $1 AND (finished_at IS NOT NULL OR proof IS NOT NULL)
