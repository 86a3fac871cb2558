-- Ends the next job of a queue unread: handing it out failed again and again, for it alone.
SELECT posthaste.bury_next($1, $2, $3, $4, $5)
