-- Only one session at a time assigns a number to an action.
SELECT pg_catalog.pg_advisory_xact_lock(1885893481, 0)
