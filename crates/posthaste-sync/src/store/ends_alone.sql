-- What nobody waits for any more ends within a second, where the server's system can tell.
SELECT pg_catalog.set_config('client_connection_check_interval', '1s', true)
 WHERE pg_catalog.version() ~ '(linux|darwin|bsd)'
