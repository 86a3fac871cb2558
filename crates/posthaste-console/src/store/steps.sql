-- The applied steps of the schema, and the version of the program that applied each.
SELECT m.name, m.version, m.applied_at FROM posthaste.migration m ORDER BY m.name LIMIT 100
