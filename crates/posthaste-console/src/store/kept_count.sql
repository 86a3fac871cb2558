-- How many jobs that were given up so match, of at most $6 that are read; how many were
-- read. A condition that is NULL is none.
SELECT count(*) FILTER (WHERE ($2::text IS NULL OR d.queue LIKE $2::text)
                          AND ($3::text IS NULL OR d.name LIKE $3::text)
                          AND ($4::text IS NULL OR d.tag LIKE $4::text)
                          AND ($5::text IS NULL OR d.last_error LIKE $5::text)) AS matching,
       count(*) AS scanned
  FROM (SELECT d.queue, d.name, d.tag, d.last_error FROM posthaste.dead d
         WHERE ($1::text IS NULL OR d.state = $1::text)
           AND ($7::timestamptz IS NULL OR d.died_at >= $7::timestamptz)
           AND ($8::timestamptz IS NULL OR d.died_at < $8::timestamptz) LIMIT $6::bigint) d
