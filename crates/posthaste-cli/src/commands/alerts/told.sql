-- Alerts of whose beginning was told in this queue, and not of their end.
SELECT a.alert, a.queue FROM posthaste.alert a WHERE a.notify = $1
