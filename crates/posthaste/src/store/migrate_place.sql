-- The state of the transaction in which a migration runs, and the settings that it must restore.
SELECT pg_catalog.json_build_object(
         'has_begun', coalesce(pg_catalog.current_setting('posthaste.migrates', true), '') = 'on',
         'isolation', pg_catalog.current_setting('transaction_isolation'),
         'server', pg_catalog.current_setting('server_version_num')::integer,
         'settings', pg_catalog.json_build_array(
           pg_catalog.current_setting('search_path'),
           pg_catalog.current_setting('standard_conforming_strings'),
           pg_catalog.current_setting('check_function_bodies'),
           pg_catalog.current_setting('client_min_messages'),
           pg_catalog.current_setting('lock_timeout'),
           pg_catalog.current_setting('statement_timeout')))::text AS answer
