-- As enqueue.sql, without waiting for a transaction that is taking the same unique key: then no
-- row.
SELECT id FROM posthaste.enqueue_nowait(
         $1, $2::jsonb, $3, $4::integer, coalesce($5::timestamptz, now()), $6::timestamptz, $7, $8,
         $9::integer, $10, $11) AS id
 WHERE id IS NOT NULL
