-- The database's part of every delivery id.
SELECT posthaste.delivery_id(0)
