-- Two programs that continue the same run take their batches in turn.
SELECT committed, files FROM public.file_run WHERE id = $1 FOR UPDATE
