-- Switches a periodic job off: its next time never comes, even after the clock steps back.
UPDATE posthaste.periodic AS p SET next_at = '9999-01-01Z', looked_at = NULL WHERE p.name = $1::text
