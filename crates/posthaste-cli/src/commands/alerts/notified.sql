-- Alerts whose beginning was notified to this queue, and not their end.
SELECT a.alert, a.queue FROM posthaste.alert a WHERE a.notify = $1
