-- Enables a periodic job again: a leader computes its next time from now on.
UPDATE posthaste.periodic AS p SET next_at = NULL, looked_at = NULL
 WHERE p.name = $1::text AND p.next_at >= '9999-01-01Z'
