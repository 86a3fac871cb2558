-- Queues in which a suspect waits to be run.
SELECT posthaste.suspect_queues()
