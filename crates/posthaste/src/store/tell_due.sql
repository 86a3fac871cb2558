-- Tells enqueuers how far the promoter is going to look, when a job is due.
SELECT posthaste.tell_due()
