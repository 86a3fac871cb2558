-- The number of matching dead jobs among at most $6 that are read, and the number read. A condition
-- that is NULL is ignored.
SELECT count(*) FILTER (WHERE ($2::text IS NULL OR d.queue LIKE $2::text)
                          AND ($3::text IS NULL OR d.name LIKE $3::text)
                          AND ($4::text IS NULL OR d.tag LIKE $4::text)
                          AND ($5::text IS NULL OR d.last_error LIKE $5::text)
                          AND ($9::text IS NULL OR d.ordering_key LIKE $9::text)
                          AND ($10::integer IS NULL OR d.priority = $10::integer)) AS matching,
       count(*) AS scanned
  FROM (SELECT d.queue, d.name, d.tag, d.last_error, d.ordering_key, d.priority
          FROM posthaste.dead d
         WHERE ($1::text IS NULL OR d.state = $1::text)
           AND ($7::timestamptz IS NULL OR d.died_at >= $7::timestamptz)
           AND ($8::timestamptz IS NULL OR d.died_at < $8::timestamptz) LIMIT $6::bigint) d
