-- The last thousand failed attempts of a job, oldest first.
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT t.attempt, t.at, t.outcome, t.worker, t.worker_name, t.error
          FROM posthaste.attempt t WHERE t.job = $1::bigint
         ORDER BY t.at DESC, t.attempt DESC LIMIT 1000) a
 ORDER BY a.at, a.attempt
