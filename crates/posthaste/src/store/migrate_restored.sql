-- Restores the settings from before a migration.
SELECT pg_catalog.concat(
         pg_catalog.set_config('search_path', $1::text, true),
         pg_catalog.set_config('standard_conforming_strings', $2::text, true),
         pg_catalog.set_config('check_function_bodies', $3::text, true),
         pg_catalog.set_config('client_min_messages', $4::text, true),
         pg_catalog.set_config('lock_timeout', $5::text, true),
         pg_catalog.set_config('statement_timeout', $6::text, true),
         pg_catalog.set_config('posthaste.migrates', '', true)) AS answer
