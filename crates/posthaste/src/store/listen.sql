-- The bell: a queue, or '' for the leader.
LISTEN posthaste
