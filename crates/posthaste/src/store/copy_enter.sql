-- Enters the segments that a COPY is going to write into, due and not due, for the rest of the
-- transaction; what the promoter has passed by now is due. The rule of posthaste.job does the
-- same once per statement.
SELECT posthaste.enter_ready() AS ready,
       CASE WHEN u.until IS NOT NULL THEN posthaste.enter_scheduled() END AS scheduled,
       clock_timestamp() AS now, greatest(clock_timestamp(), u.until) AS due_by
  FROM (SELECT posthaste.promote_horizon() AS until OFFSET 0) u
