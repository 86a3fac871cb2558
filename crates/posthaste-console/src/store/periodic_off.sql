-- Switches a periodic job off: its next time never comes, and no clock that steps back looks again.
UPDATE posthaste.periodic AS p SET next_at = '9999-01-01Z', looked_at = NULL WHERE p.name = $1::text
