-- Second step: takes over every job that is not done; how many.
SELECT posthaste.rebase()
