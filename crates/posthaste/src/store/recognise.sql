-- Refuses a store whose jobs were not taken over yet (migrations/0016_restore.sql).
SELECT posthaste.recognise()
