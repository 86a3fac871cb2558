-- The table that was prepared under this name, and whether it is the one called so; nothing where
-- none was.
SELECT s.relation::regclass::text, s.relation::oid = pg_catalog.to_regclass($2)::oid
  FROM posthaste.synced s WHERE s.name = $1
