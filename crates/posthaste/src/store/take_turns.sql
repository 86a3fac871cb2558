-- One step of the lines of ordering keys.
SELECT posthaste.take_turns($1)
