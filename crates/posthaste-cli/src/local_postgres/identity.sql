-- Checks, before a running server is used, that it has the expected data directory.
SELECT current_setting('data_directory')
