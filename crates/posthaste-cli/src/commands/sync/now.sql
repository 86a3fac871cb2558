-- The server's clock: jobs enqueued up to then are awaited.
SELECT clock_timestamp()
