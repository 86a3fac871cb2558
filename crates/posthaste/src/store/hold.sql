-- Moves running jobs out of the oldest generation.
SELECT posthaste.hold($1, $2, $3)
