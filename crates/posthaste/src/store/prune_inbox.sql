-- Forgets a page of what was received long ago; how many.
SELECT posthaste.prune_inbox()
