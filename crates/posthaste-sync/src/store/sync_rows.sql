SELECT r.id, r.version, r.document FROM posthaste.sync_rows($1, $2) r
