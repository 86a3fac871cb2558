-- Whether a table was prepared under this name.
SELECT EXISTS (SELECT FROM posthaste.synced s WHERE s.name = $1)
