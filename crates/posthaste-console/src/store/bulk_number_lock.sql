-- Numbers of actions are drawn by one at a time.
SELECT pg_catalog.pg_advisory_xact_lock(1885893481, 0)
