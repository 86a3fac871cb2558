-- Settles jobs of one batch, each with its own outcome; waits are in milliseconds. Returns the ids
-- that it closed. Its commit waits for the disk, unlike that of posthaste.settle() in a handler's
-- own transaction.
SELECT posthaste.settle($1, $2, $3, $4, $5, $6,
  ARRAY(SELECT u.ms::float8 * interval '1 millisecond'
          FROM pg_catalog.unnest($7::bigint[]) WITH ORDINALITY u (ms, n) ORDER BY u.n),
  $8, $9, $10)
  FROM (SELECT posthaste.wait_for_disk() OFFSET 0) d
