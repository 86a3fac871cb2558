-- Whether no other session executes a batch of this action ($1); then none can until the
-- transaction ends.
SELECT pg_catalog.pg_try_advisory_xact_lock(1885893481, $1::integer) AS is_free
