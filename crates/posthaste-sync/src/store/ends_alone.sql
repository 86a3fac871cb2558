-- What nobody waits for any more ends within a second, where the server's system can tell.
BEGIN;
SELECT set_config('client_connection_check_interval', '1s', true)
 WHERE version() ~ '(linux|darwin|bsd)'
