-- Ends a statement within a second after its client has gone, if the server's system supports that.
-- Returns whether this is a standby.
SELECT pg_catalog.pg_is_in_recovery(),
       CASE WHEN pg_catalog.version() ~ '(linux|darwin|bsd)'
            THEN pg_catalog.set_config('client_connection_check_interval', '1s', true) END
