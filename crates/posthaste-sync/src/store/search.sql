SELECT s.id FROM posthaste.search s, websearch_to_tsquery($2::text::regconfig, $3) q
 WHERE s.index = $1 AND s.deleted_at IS NULL AND s.words @@ q
 ORDER BY ts_rank_cd(s.words, q) DESC, s.id LIMIT $4
