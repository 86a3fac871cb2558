-- Unfinished jobs. A condition that is NULL is ignored. $7 is 1 for the oldest first, -1 for the
-- newest.
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT j.id, j.name, j.queue, j.priority, j.state, j.attempt, j.max_attempts, j.enqueued_at,
               j.scheduled_at, j.expires_at, j.tag, j.unique_key, j.ordering_key, j.last_error
          FROM posthaste.job j
         WHERE ($1::bigint[] IS NULL OR j.id = ANY ($1::bigint[]))
           AND ($2::text IS NULL OR j.queue = $2::text) AND ($3::text IS NULL OR j.name = $3::text)
           AND ($4::text IS NULL OR j.tag = $4::text) AND ($5::text IS NULL OR j.state = $5::text)
           AND ($6::text IS NULL OR j.last_error LIKE $6::text)
         ORDER BY j.id * $7::bigint LIMIT $8::bigint) a
 ORDER BY a.id * $7::bigint
