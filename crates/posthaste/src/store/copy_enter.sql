-- Enters the segments for the due and the scheduled jobs of a COPY for the rest of the transaction,
-- as the rule of posthaste.job does once per statement. Jobs due by due_by are due: the promoter
-- has read so far.
SELECT posthaste.enter_ready() AS ready,
       CASE WHEN u.until IS NOT NULL THEN posthaste.enter_scheduled() END AS scheduled,
       clock_timestamp() AS now, greatest(clock_timestamp(), u.until) AS due_by
  FROM (SELECT posthaste.promote_horizon() AS until OFFSET 0) u
