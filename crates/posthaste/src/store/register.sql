-- A worker begins: its id, and its delivery ids: from each first job id on, that of job 0.
SELECT o_worker, o_first, o_zero FROM posthaste.register($1)
