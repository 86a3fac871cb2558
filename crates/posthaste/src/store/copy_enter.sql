-- Enters the generations that a COPY is going to write into, due and not due, for the rest of the transaction; what the promoter has looked at by now is
-- due. The rule of posthaste.job does the same once per statement.
SELECT posthaste.enter_ready() AS ready, posthaste.enter_parked() AS parked, clock_timestamp() AS now,
       greatest(clock_timestamp(), posthaste.parked_until()) AS due_by
