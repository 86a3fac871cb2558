-- Enqueues one job in the caller's transaction. Returns its id, or that of the job that holds its
-- unique key.
SELECT posthaste.enqueue($1, $2::jsonb, $3, $4::integer, coalesce($5::timestamptz, now()),
                         $6::timestamptz, $7, $8, $9::integer, $10, $11) AS id
