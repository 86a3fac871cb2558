-- Nobody rings for this queue any more.
SELECT posthaste.rest_bell(posthaste.bell_of($1))
