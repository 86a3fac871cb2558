-- The server's clock, and the bound up to which jobs are waited for.
SELECT clock_timestamp()
