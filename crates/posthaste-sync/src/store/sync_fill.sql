SELECT posthaste.sync_fill($1)
