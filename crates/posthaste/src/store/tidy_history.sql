-- Forgets failed attempts and done jobs that were kept for long enough.
SELECT o_turned, o_blocker FROM posthaste.tidy_history()
