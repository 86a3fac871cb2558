-- Whether this role may note what it tells.
SELECT pg_catalog.has_table_privilege('posthaste.alert', 'INSERT')
   AND pg_catalog.has_table_privilege('posthaste.alert', 'UPDATE')
   AND pg_catalog.has_table_privilege('posthaste.alert', 'DELETE')
