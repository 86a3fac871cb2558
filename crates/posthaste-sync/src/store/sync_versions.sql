SELECT v.id, v.version, v.is_there FROM posthaste.sync_versions($1, $2) v
