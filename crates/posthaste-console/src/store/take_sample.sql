-- Takes a sample. A read-only role does not, and neither does this session if a worker leads, which
-- takes the samples.
SELECT CASE WHEN pg_catalog.current_setting('transaction_read_only') = 'off'
                 AND pg_catalog.has_table_privilege('posthaste.sample', 'INSERT')
                 AND pg_catalog.has_table_privilege('posthaste.sample', 'DELETE')
                 AND NOT EXISTS (SELECT FROM posthaste.leader l
                       WHERE clock_timestamp() BETWEEN l.since AND l.until)
            THEN posthaste.take_sample() ELSE false END
