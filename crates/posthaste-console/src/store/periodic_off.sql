-- Disables a periodic job: its next time is the year 9999, even after the clock steps back.
UPDATE posthaste.periodic AS p SET next_at = '9999-01-01Z', looked_at = NULL WHERE p.name = $1::text
