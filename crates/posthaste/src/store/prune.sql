-- Forgets what nobody needs.
SELECT posthaste.prune(), posthaste.prune_inbox()
