-- Promotes what is due.
SELECT posthaste.promote($1, $2)
