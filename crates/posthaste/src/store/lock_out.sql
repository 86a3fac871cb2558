-- First step of a rebase: nobody works here until the second is done.
SELECT posthaste.lock_out($1)
