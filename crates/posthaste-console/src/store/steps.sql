-- What was applied of the schema, and by which version of the program.
SELECT m.name, m.version, m.applied_at FROM posthaste.migration m ORDER BY m.name LIMIT 100
