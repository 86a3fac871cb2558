-- Settings of a session until its transaction ends.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       -- Times without a zone are in UTC, as on all pages.
       pg_catalog.set_config('TimeZone', 'UTC', true),
       -- Compiling a statement takes longer than running it.
       pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('statement_timeout', $1::text, true),
       pg_catalog.set_config('lock_timeout', '1s', true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true)
