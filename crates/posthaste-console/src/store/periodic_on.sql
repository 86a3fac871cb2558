-- Switches a periodic job on again: a leader finds its next time from now.
UPDATE posthaste.periodic AS p SET next_at = NULL, looked_at = NULL
 WHERE p.name = $1::text AND p.next_at >= '9999-01-01Z'
