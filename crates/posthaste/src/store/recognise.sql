-- Refuses a store whose jobs were not taken over yet (migrations/0015_restore.sql).
SELECT posthaste.recognise()
