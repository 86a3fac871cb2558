-- Nobody rings these any more.
SELECT posthaste.rest_bell($1)
