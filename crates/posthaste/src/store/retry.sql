-- Runs jobs now that wait for their time. Returns the state of each. A condition that is NULL is
-- ignored.
SELECT pg_catalog.json_build_array(r.job_id, r.is_now)::text AS answer
  FROM posthaste.retry($1::bigint[], $2::text, $3::text, $4::text, $5::text, $6::text,
                       $7::integer) r
 ORDER BY r.job_id
