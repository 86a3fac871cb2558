-- Who may only look looks.
SELECT CASE WHEN pg_catalog.current_setting('transaction_read_only') = 'off'
                 AND pg_catalog.has_table_privilege('posthaste.sample', 'INSERT')
                 AND pg_catalog.has_table_privilege('posthaste.sample', 'DELETE')
            THEN posthaste.take_sample() ELSE false END
