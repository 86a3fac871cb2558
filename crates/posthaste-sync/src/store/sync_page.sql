SELECT p.id, p.version, p.is_there FROM posthaste.sync_page($1, $2, $3) p
