-- Closes jobs of one batch, each in its own way; returns the ids that were still ours. Waits are
-- sent in milliseconds.
SELECT posthaste.settle($1, $2, $3, $4, $5, $6,
  ARRAY(SELECT u.ms::float8 * interval '1 millisecond'
          FROM pg_catalog.unnest($7::bigint[]) WITH ORDINALITY u (ms, n) ORDER BY u.n),
  $8, $9, $10)
