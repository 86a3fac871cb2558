-- Alerts whose beginning was reported to this queue, and whose end was not.
SELECT a.alert, a.queue FROM posthaste.alert a WHERE a.notify = $1
