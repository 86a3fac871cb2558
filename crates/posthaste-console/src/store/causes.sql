-- The last errors of dead jobs of state $1: the matching ones of the newest few thousand ($6), and
-- the number read. A condition that is NULL is ignored.
WITH near AS MATERIALIZED (
  SELECT d.queue, d.name, d.tag, d.ordering_key, d.priority, left(d.last_error, 300) AS error
    FROM posthaste.dead d
   WHERE d.state = $1::text AND d.died_at >= coalesce($2::timestamptz, '-infinity')
     AND d.died_at < coalesce($3::timestamptz, 'infinity')
   ORDER BY d.died_at DESC LIMIT $6::bigint
)
SELECT n.queue, n.name, n.error, count(*) AS jobs, (SELECT count(*) FROM near) AS scanned
  FROM near n
 WHERE n.error <> ''::text
   AND ($4::text IS NULL OR n.queue LIKE $4::text) AND ($5::text IS NULL OR n.name LIKE $5::text)
   AND ($7::text IS NULL OR n.tag LIKE $7::text)
   AND ($8::text IS NULL OR n.ordering_key LIKE $8::text)
   AND ($9::integer IS NULL OR n.priority = $9::integer)
 GROUP BY n.queue, n.name, n.error
