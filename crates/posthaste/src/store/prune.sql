-- Forgets what nobody needs.
SELECT posthaste.prune()
