-- Seals the oldest generation when all of it was claimed.
SELECT o_sealed, o_blocker FROM posthaste.seal()
