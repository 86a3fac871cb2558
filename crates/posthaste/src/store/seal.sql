-- Seals the oldest generation when all of it was claimed.
SELECT posthaste.seal()
