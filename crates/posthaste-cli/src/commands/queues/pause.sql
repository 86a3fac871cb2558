SELECT posthaste.pause($1)
