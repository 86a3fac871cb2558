SELECT posthaste.resume($1)
