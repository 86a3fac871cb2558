-- Dead jobs of state $1 until $4, oldest deaths first: the matching ones, at most $10, of the next
-- few thousand ($9) after this time and id. The last row has the last job read and the number of
-- jobs read. A condition that is NULL is ignored.
WITH near AS MATERIALIZED (
  SELECT d.id, d.died_at, d.queue, d.name, d.tag, d.last_error, d.ordering_key, d.priority
    FROM posthaste.dead d
   WHERE d.state = $1::text AND d.died_at >= $2::timestamptz
     AND (d.died_at, d.id) > ($2::timestamptz, $3::bigint) AND d.died_at <= $4::timestamptz
     AND d.died_at < coalesce($11::timestamptz, 'infinity')
   ORDER BY d.died_at, d.id LIMIT $9::bigint
), matching AS MATERIALIZED (
  SELECT n.id, n.died_at FROM near n
   WHERE ($5::text IS NULL OR n.queue LIKE $5::text) AND ($6::text IS NULL OR n.name LIKE $6::text)
     AND ($7::text IS NULL OR n.tag LIKE $7::text)
     AND ($8::text IS NULL OR n.last_error LIKE $8::text)
     AND ($12::text IS NULL OR n.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR n.priority = $13::integer)
   ORDER BY n.died_at, n.id LIMIT $10::bigint
), scanned AS (
  SELECT n.id, n.died_at, count(*) OVER () AS rows
    FROM near n ORDER BY n.died_at DESC, n.id DESC LIMIT 1
)
SELECT m.id, m.died_at, NULL::bigint AS scanned FROM matching m
UNION ALL
SELECT l.id, l.died_at, l.rows FROM scanned l
 ORDER BY scanned NULLS FIRST, died_at, id
