SELECT s.id, s.version, s.pass, s.token, s.deleted_at IS NULL FROM posthaste.search s
 WHERE s.index = $1 AND s.id = ANY ($2)
