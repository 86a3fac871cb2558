-- Closes jobs of one batch, each with its own outcome; returns the ids that were still ours. Waits
-- are sent in milliseconds. posthaste.settle() itself leaves it to a handler's own transaction
-- whether its commit waits for the disk.
SELECT posthaste.settle($1, $2, $3, $4, $5, $6,
  ARRAY(SELECT u.ms::float8 * interval '1 millisecond'
          FROM pg_catalog.unnest($7::bigint[]) WITH ORDINALITY u (ms, n) ORDER BY u.n),
  $8, $9, $10)
  FROM (SELECT posthaste.wait_for_disk() OFFSET 0) d
