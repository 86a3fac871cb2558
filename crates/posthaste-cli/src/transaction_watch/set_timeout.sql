-- The statement that sets a timeout for new sessions of a role.
SELECT pg_catalog.format('ALTER ROLE %I SET %I = %L', $1, $2, $3);
