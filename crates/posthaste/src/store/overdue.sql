-- Tries again what was not confirmed in time.
SELECT posthaste.overdue($1)
