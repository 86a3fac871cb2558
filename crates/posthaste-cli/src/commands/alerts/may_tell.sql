-- Whether this role may record alerts.
SELECT pg_catalog.has_table_privilege('posthaste.alert', 'INSERT')
   AND pg_catalog.has_table_privilege('posthaste.alert', 'UPDATE')
   AND pg_catalog.has_table_privilege('posthaste.alert', 'DELETE')
