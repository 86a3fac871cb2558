SELECT s.id, s.version, s.pass, s.token, s.deleted_at IS NULL FROM posthaste.search s
 WHERE s.index = $1 AND ($2::text IS NULL OR s.id > $2) ORDER BY s.id LIMIT $3
