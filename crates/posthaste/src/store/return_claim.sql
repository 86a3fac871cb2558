-- Gives back a claim whose answer never came.
SELECT posthaste.return_claim($1, $2)
