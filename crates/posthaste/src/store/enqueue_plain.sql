-- One job of which nothing is said but its name and arguments: two parameters instead of nine.
SELECT posthaste.enqueue($1, $2)
