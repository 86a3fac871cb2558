-- Moves unclaimed jobs out of the ring.
SELECT posthaste.move_aside($1, $2)
