-- The table that is synced under this name, and whether it has this name; no row if there is none.
SELECT s.relation::regclass::text, s.relation::oid = pg_catalog.to_regclass($2)::oid
  FROM posthaste.synced s WHERE s.name = $1
