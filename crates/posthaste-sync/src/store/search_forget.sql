DELETE FROM posthaste.search s USING (
  SELECT o.index, o.id FROM posthaste.search o
   WHERE o.index = $1
     AND o.deleted_at < posthaste.retention_clock() - $2::bigint::float8 * interval '1 millisecond'
   LIMIT $3 FOR UPDATE SKIP LOCKED) o
 WHERE (s.index, s.id) = (o.index, o.id) AND s.deleted_at IS NOT NULL
