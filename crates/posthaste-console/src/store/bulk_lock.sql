-- Whether nobody else is at a batch of this action ($1); then nobody is until the transaction ends.
SELECT pg_catalog.pg_try_advisory_xact_lock(1885893481, $1::integer) AS is_free
