-- Jobs that are to be cancelled while they run.
SELECT id FROM posthaste.cancelling
