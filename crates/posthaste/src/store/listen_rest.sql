-- Bells that were put to rest.
LISTEN posthaste_rest
