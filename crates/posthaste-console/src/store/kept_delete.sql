-- Deletes kept jobs that were given up so ($1), those first that were given up first, at most $7. A
-- condition that is NULL is none.
DELETE FROM posthaste.dead AS x WHERE x.id = ANY (ARRAY(
  SELECT d.id FROM posthaste.dead d
   WHERE d.state = $1::text AND d.died_at >= coalesce($6::timestamptz, '-infinity')
     AND ($2::text IS NULL OR d.queue = $2::text) AND ($3::text IS NULL OR d.name = $3::text)
     AND ($4::text IS NULL OR d.tag = $4::text) AND ($5::text IS NULL OR d.last_error LIKE $5::text)
   ORDER BY d.died_at, d.id LIMIT $7::bigint))
